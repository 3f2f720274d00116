"""Token ids to text, compared with the tokenizer's own decoding."""

from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from clawpipe.model.policy.tiny import byte_tokenizer
from clawpipe.serve.serving.tokens import TextStream, TokenSpelling

BYTES = byte_tokenizer().backend_tokenizer


def sentencepiece():
    """A vocabulary in SentencePiece's manner: ▁ for a space, single bytes as <0x..>, the first space dropped."""
    pieces = ["<unk>", *(f"<0x{byte:02X}>" for byte in range(256)), "▁", "▁a", "a", "b", "▁ab"]
    vocabulary = {piece: index for index, piece in enumerate(pieces)}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[("▁", "a"), ("▁a", "b")], unk_token="<unk>", byte_fallback=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer).backend_tokenizer


SENTENCEPIECE = sentencepiece()


def composing():
    """A byte-level vocabulary behind a normaliser that makes one character of several."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFKC()
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    tokenizer.train_from_iterator(["the same words, the same words"], trainers.BpeTrainer(initial_alphabet=alphabet))
    return tokenizer


COMPOSING = composing()


def streamed(backend, ids):
    stream = TextStream(backend)
    return "".join(map(stream.push, ids)) + stream.rest()


@given(st.text(st.characters(codec="utf-8") | st.sampled_from("theswords, \uff41\U0001d400\u1100\u1161\u11a8"), max_size=40))
def test_so_many_tokens_stand_for_no_more_bytes(text):
    """A text refused for its bytes could not fit: it has at least bytes / longest token tokens."""
    for backend in (BYTES, SENTENCEPIECE, COMPOSING):
        assert len(text.encode()) <= TokenSpelling(backend).longest() * len(backend.encode(text).ids)


def test_a_tokenizer_with_unknown_tokens_has_no_length_bound():
    words = Tokenizer(models.WordLevel({"a": 0, "<unk>": 1}, unk_token="<unk>"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    assert TokenSpelling(words).longest() is None
    assert len(words.encode("b" * 1000).ids) == 1
    stripping = composing()
    stripping.normalizer = normalizers.Strip()
    assert TokenSpelling(stripping).longest() is None


@given(st.lists(st.integers(0, 258), max_size=30))
def test_a_stream_of_bytes_joined_is_the_text(ids):
    assert streamed(BYTES, ids) == BYTES.decode(ids, skip_special_tokens=False)


@given(st.text(st.characters(codec="utf-8"), max_size=10))
def test_no_character_is_sent_in_halves(text):
    stream = TextStream(BYTES)
    pieces = [stream.push(token) for token in BYTES.encode(text).ids]
    assert "".join(pieces) + stream.rest() == text
    assert all(piece in ("", letter) for piece, letter in zip(filter(None, pieces), text, strict=False) if "\ufffd" not in text)


@given(st.text(st.sampled_from("ab é😀"), max_size=8))
def test_a_stream_of_sentencepiece_joined_is_the_text(text):
    ids = SENTENCEPIECE.encode(text).ids
    assert streamed(SENTENCEPIECE, ids) == SENTENCEPIECE.decode(ids, skip_special_tokens=False)


def test_a_token_is_spelt_in_its_own_bytes():
    spelling = TokenSpelling(BYTES)
    for text in ("a", " ", "\n", "é", "😀", "\x00"):
        entries = [spelling.body(token, -1.0) for token in BYTES.encode(text).ids]
        assert bytes(byte for entry in entries for byte in entry["bytes"]) == text.encode()
    assert spelling.body(BYTES.encode("a").ids[0], -0.5) == {"token": "a", "logprob": -0.5, "bytes": [97]}
    assert spelling.body(257, -0.5)["token"] == "<|im_end|>"
    spelling = TokenSpelling(SENTENCEPIECE)
    assert [spelling.body(token, 0.0)["token"] for token in SENTENCEPIECE.encode("ab").ids] == [" ab"]
    assert spelling.body(1 + 0xC3, 0.0)["bytes"] == [0xC3]


def test_an_id_beyond_the_tokenizers_vocabulary_has_no_text():
    assert TokenSpelling(BYTES).body(10_000, -1.0) == {"token": "", "logprob": -1.0, "bytes": []}
