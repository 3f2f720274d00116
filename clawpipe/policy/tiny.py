"""A tokenizer of bytes: the vocabulary of the built-in `random` model, and of tests."""

from __future__ import annotations

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

SPECIALS = ("<|im_start|>", "<|im_end|>", "<|pad|>")


def byte_tokenizer() -> PreTrainedTokenizerFast:
    """256 byte tokens (ids 0-255, in the order of their byte-level letters) and three special ones (256-258); no merges."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={letter: index for index, letter in enumerate(letters)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(text, special=True, normalized=False) for text in SPECIALS])
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token=SPECIALS[1], pad_token=SPECIALS[2])
