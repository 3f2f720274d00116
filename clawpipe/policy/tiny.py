"""The built-in `random` model and its tokenizer of bytes: a whole night in seconds, for tests and for changing the code."""

from __future__ import annotations

import string

import numpy as np
import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

SPECIALS = ("<|im_start|>", "<|im_end|>", "<|pad|>")
_KINDS = (string.ascii_lowercase, string.ascii_uppercase, string.digits, string.punctuation + " ")
_SCALE = 0.15  # standard deviation; with the usual 0.02 no adapter could move the logits far enough to prefer anything
_SEED = 24  # of a model that says a lower-case letter one time in four
_HEAD = "lm_head.weight"


def byte_tokenizer() -> PreTrainedTokenizerFast:
    """256 byte tokens (ids 0-255, in the order of their byte-level letters) and three special ones (256-258); no merges."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={letter: index for index, letter in enumerate(letters)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(text, special=True, normalized=False) for text in SPECIALS])
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token=SPECIALS[1], pad_token=SPECIALS[2])


def byte_model() -> LlamaForCausalLM:
    """A Llama of two layers over those tokens, whose weights nobody trained; the same bits on every machine.

    In the output layer half of a token's variance is that of its kind: lower case, upper case, digits and so on. Kinds are
    alike in every trained model; here they are so that "more of this kind" is one direction, which few updates find on any
    seed. With independent rows each of 26 letters had to be learnt by itself, and what was learnt drowned in noise.
    """
    tokenizer, generator = byte_tokenizer(), np.random.default_rng(_SEED)
    end = tokenizer.convert_tokens_to_ids(SPECIALS[1])
    assert isinstance(end, int)
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(tokenizer),
            hidden_size=64,
            intermediate_size=128,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            max_position_embeddings=1024,
            eos_token_id=end,
            bos_token_id=None,
            pad_token_id=end,
        )
    )
    drawn = {name: _draw(generator, *weight.shape) for name, weight in sorted(model.named_parameters()) if weight.dim() == 2}
    kinds = [_kind(token) for token in tokenizer.convert_ids_to_tokens(list(range(len(tokenizer))))]
    shared = _draw(generator, len(_KINDS) + 1, drawn[_HEAD].shape[1])
    drawn[_HEAD] = (drawn[_HEAD] + shared[kinds]) * 0.5**0.5
    model.load_state_dict(drawn, strict=False)  # norms stay at 1
    return model


def _draw(generator: np.random.Generator, *shape: int) -> Tensor:
    """Uniform weights. From whole numbers, because torch's own draws differ in the last bits from CPU to CPU."""
    whole = generator.integers(-(2**15), 2**15, shape).astype(np.float32)
    return torch.from_numpy(whole * np.float32(_SCALE * 3**0.5 / 2**15))


def _kind(token: str) -> int:
    """Position in `_KINDS`, or behind them for all that is none of these."""
    return next((kind for kind, members in enumerate(_KINDS) if token in members), len(_KINDS))
