"""The tokenizer of bytes."""

from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoTokenizer

from clawpipe.policy.tiny import byte_tokenizer

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
