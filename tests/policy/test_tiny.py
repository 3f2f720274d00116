"""The built-in model of bytes and its tokenizer."""

import hashlib

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoTokenizer

from clawpipe.model.policy.tiny import byte_model, byte_tokenizer

TOKENIZER = byte_tokenizer()


@given(st.text(st.characters(codec="utf-8")))
def test_a_token_is_a_byte(text):
    ids = TOKENIZER.encode(text, add_special_tokens=False, split_special_tokens=True)
    assert len(ids) == len(text.encode())
    assert max(ids, default=0) < 256
    assert TOKENIZER.decode(ids) == text


def test_it_survives_saving(tmp_path):
    TOKENIZER.save_pretrained(tmp_path)
    again = AutoTokenizer.from_pretrained(tmp_path)
    assert again.backend_tokenizer.to_str() == TOKENIZER.backend_tokenizer.to_str()
    assert (len(again), again.eos_token_id, again.pad_token_id) == (259, 257, 258)


def test_the_model_has_the_same_bits_on_every_machine():
    """torch's normal draws differ between CPUs: `random` was once another model, with another digest, on each."""
    weights = sorted(byte_model().state_dict().items())
    digest = hashlib.sha256(b"".join(name.encode() + weight.numpy().tobytes() for name, weight in weights)).hexdigest()
    assert digest.startswith("05e332936902564a")


def test_tokens_of_a_kind_are_alike_in_the_output_layer():
    rows = torch.nn.functional.normalize(byte_model().lm_head.weight.detach())
    lower, upper = (rows[TOKENIZER.convert_tokens_to_ids(list(letters))] for letters in ("abcxyz", "ABCXYZ"))
    alike = (lower @ lower.T)[~torch.eye(6, dtype=torch.bool)].mean()
    assert alike == pytest.approx(0.5, abs=0.1)
    assert (lower @ upper.T).mean() < alike - 0.3
