"""The built-in `random` model and its byte tokenizer: a whole night in seconds, for tests and development."""

from __future__ import annotations

import string

import numpy as np
import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

SPECIALS = ("<|im_start|>", "<|im_end|>", "<|pad|>")
_KINDS = (string.ascii_lowercase, string.ascii_uppercase, string.digits, string.punctuation + " ")
_SCALE = 0.15  # standard deviation; with the usual 0.02 an adapter could not move the logits enough to learn a preference
_SEED = 24  # seed of a model that samples a lower-case letter one time in four
_HEAD = "lm_head.weight"


def byte_tokenizer() -> PreTrainedTokenizerFast:
    """Return a tokenizer of 256 bytes (ids 0-255, in the order of their byte-level letters) and three special tokens (256-258)."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={letter: index for index, letter in enumerate(letters)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(text, special=True, normalized=False) for text in SPECIALS])
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token=SPECIALS[1], pad_token=SPECIALS[2])


def byte_model() -> LlamaForCausalLM:
    """Return a Llama of two layers over those tokens with untrained weights; the same bits on every machine.

    In the output layer, half of a token's variance is shared by its kind: lower case, upper case, digits and so on. Tokens of
    a kind are alike in every trained model; here they make "more of this kind" one direction, which few optimizer steps find on
    any seed. With independent rows each of 26 letters had to be learnt separately, and the signal drowned in noise.
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
    """Draw uniform weights from integers, because torch's own draws differ in the last bits between CPUs."""
    whole = generator.integers(-(2**15), 2**15, shape).astype(np.float32)
    return torch.from_numpy(whole * np.float32(_SCALE * 3**0.5 / 2**15))


def _kind(token: str) -> int:
    """Return the position in `_KINDS`, or its length for tokens of no kind."""
    return next((kind for kind, members in enumerate(_KINDS) if token in members), len(_KINDS))
