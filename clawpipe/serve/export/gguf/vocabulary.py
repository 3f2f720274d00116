"""Write a tokenizer into a GGUF file: byte-level BPE, which llama.cpp calls gpt2."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

import gguf
from gguf import TokenType
from transformers.integrations.gguf.gguf_tokenizer_mapping import GGUF_PRE_TOKENIZER_SPLITS

from clawpipe.serve.export.gguf.families import refused

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

_BY_RULE = {  # how text is split before merges, by its steps; llama.cpp knows each way by a name
    ("ByteLevel",): "gpt-2",
    ("Digits", "ByteLevel"): "smollm",
}
_BY_PATTERN = {  # by the pattern, and whether a word that is a token stays whole, whatever the merges say
    (GGUF_PRE_TOKENIZER_SPLITS["qwen2"], False): "qwen2",
    (GGUF_PRE_TOKENIZER_SPLITS["llama-bpe"], True): "llama-bpe",
    (GGUF_PRE_TOKENIZER_SPLITS["llama-bpe"], False): "smaug-bpe",
    (GGUF_PRE_TOKENIZER_SPLITS["tekken"], True): "tekken",
}


class Vocabulary(NamedTuple):
    """The vocabulary as llama.cpp reads it.

    Attributes:
        split: its name for how text is split before merges.
        tokens: text of each id, in the letters of byte-level BPE.
        kinds: kind of each id.
        merges: pairs of tokens, the first merge first.
    """

    split: str
    tokens: list[str]
    kinds: list[TokenType]
    merges: list[str]


def vocabulary_of(tokenizer: PreTrainedTokenizerFast, size: int, where: str) -> Vocabulary:
    """Return the vocabulary of a tokenizer, filled up with unused tokens to the model's `size`.

    Raises:
        ConfigError: llama.cpp would read text as other tokens than this tokenizer.
    """
    backend = json.loads(tokenizer.backend_tokenizer.to_str())
    model = backend["model"]
    if model["type"] != "BPE" or model.get("byte_fallback") or _types(backend.get("decoder"))[-1:] != ["ByteLevel"]:
        raise refused("the model's tokenizer is no byte-level BPE", where)
    if not model["merges"]:
        raise refused("the model's tokenizer has no merges, without which llama.cpp reads none", where)
    if (backend.get("normalizer") or {"type": "NFC"})["type"] != "NFC":
        raise refused("the model's tokenizer rewrites text before it splits it", where)
    merges = [merge if isinstance(merge, str) else " ".join(merge) for merge in model["merges"]]
    return Vocabulary(_split_of(backend, where), *_tokens(tokenizer, size, where), merges)


def add_vocabulary(writer: gguf.GGUFWriter, tokenizer: PreTrainedTokenizerFast, vocabulary: Vocabulary, end: int) -> None:
    """Write a vocabulary, its special tokens and the chat template.

    Args:
        end: id of the token that ends a turn.
    """
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(vocabulary.split)
    writer.add_token_list(vocabulary.tokens)
    writer.add_token_types(vocabulary.kinds)
    writer.add_token_merges(vocabulary.merges)
    writer.add_add_space_prefix(False)
    writer.add_add_bos_token(list(tokenizer("")["input_ids"])[:1] == [tokenizer.bos_token_id])
    writer.add_eot_token_id(end)
    for add, token in (
        (writer.add_bos_token_id, tokenizer.bos_token_id),
        (writer.add_eos_token_id, tokenizer.eos_token_id),
        (writer.add_unk_token_id, tokenizer.unk_token_id),
        (writer.add_pad_token_id, tokenizer.pad_token_id),
    ):
        if isinstance(token, int):
            add(token)
    if isinstance(tokenizer.chat_template, str):
        writer.add_chat_template(tokenizer.chat_template)


def _tokens(tokenizer: PreTrainedTokenizerFast, size: int, where: str) -> tuple[list[str], list[TokenType]]:
    found = {token: text for text, token in tokenizer.get_vocab().items()}
    if max(found) >= size:
        raise refused(f"the tokenizer has {max(found) + 1} tokens and the model {size}", where)
    added = {
        token: TokenType.CONTROL if text.special else TokenType.USER_DEFINED
        for token, text in tokenizer.added_tokens_decoder.items()
    }
    kinds = {token: added.get(token, TokenType.NORMAL) for token in found}
    return (
        [found.get(token, f"[PAD{token}]") for token in range(size)],
        [kinds.get(token, TokenType.UNUSED) for token in range(size)],
    )


def _split_of(backend: dict[str, Any], where: str) -> str:
    steps = _steps(backend.get("pre_tokenizer"))
    kinds = tuple(step["type"] for step in steps)
    last = steps[-1] if steps else {}
    name = None
    if kinds == ("Split", "ByteLevel") and not last["use_regex"]:
        pattern = steps[0]["pattern"].get("Regex")
        isolated = steps[0]["behavior"] == "Isolated" and not steps[0]["invert"]
        name = _BY_PATTERN.get((pattern, bool(backend["model"].get("ignore_merges")))) if isolated else None
    elif last.get("use_regex") and all(step.get("individual_digits", True) for step in steps):
        name = _BY_RULE.get(kinds)
    if name is None or last["add_prefix_space"]:
        raise refused("the model's tokenizer splits text in a way for which llama.cpp's name is not known here", where)
    return name


def _types(step: dict[str, Any] | None) -> list[str]:
    return [part["type"] for part in _steps(step)]


def _steps(step: dict[str, Any] | None) -> list[dict[str, Any]]:
    """Return the parts of a sequence of steps, or the single step."""
    if step is None:
        return []
    return step.get("pretokenizers") or step.get("decoders") or [step]
