import unicodedata

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clawpipe.core.basics.words import words_of
from clawpipe.data.similarity.words import dialogue_text, jaccard, runs_of, shingles, word_hashes

WORDS = st.lists(st.sampled_from(["a", "b", "c", "dd"]), max_size=25)


def plain_shingles(words, size=5):
    size = min(size, len(words))
    return {tuple(words[i : i + size]) for i in range(len(words) - size + 1)} if size else set()


@given(WORDS, WORDS)
def test_the_similarity_is_that_of_sets_of_words_in_a_row(left, right):
    one, other = plain_shingles(left), plain_shingles(right)
    expected = len(one & other) / len(one | other) if one | other else 0.0
    assert jaccard(shingles(word_hashes(left)), shingles(word_hashes(right))) == expected


@given(WORDS, st.integers(1, 8))
def test_there_is_one_window_for_every_run_of_words(words, size):
    runs = [tuple(words[i : i + size]) for i in range(len(words) - size + 1)]
    found = runs_of(word_hashes(words), size).tolist()
    assert len(found) == len(runs)
    assert len(set(found)) == len(set(runs))
    assert len(set(zip(runs, found, strict=True))) == len(set(runs))  # equal runs have equal hashes


def test_hashes_are_the_same_on_every_machine():
    """Recorded once: signatures that are stored must mean the same for ever."""
    import hashlib

    expected = int.from_bytes(hashlib.blake2b(b"kettle", digest_size=8).digest(), "little")
    assert word_hashes(["kettle"]).tolist() == [expected]
    words = ["iron", "kettle"]
    value = 2
    for word in words:
        digest = hashlib.blake2b(word.encode(), digest_size=8).digest()
        value = (value * 0x9E3779B97F4A7C15 + int.from_bytes(digest, "little")) % 2**64
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) % 2**64
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) % 2**64
    assert runs_of(word_hashes(words), 2).tolist() == [value ^ (value >> 31)]
    assert runs_of(word_hashes(words), 2).dtype == np.uint64


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("It's 3.5 kg, OK?", ["it", "s", "3", "5", "kg", "ok"]),
        ("snake_case  \n\tX", ["snake_case", "x"]),
        ("日本語 text", ["日", "本", "語", "text"]),
        ("…!?", []),
        ("", []),
    ],
)
def test_words(text, words):
    assert words_of(text) == words


@given(st.text(alphabet="aeéñÅ ß1,", max_size=20))
def test_unicode_forms_and_case_make_no_difference(text):
    assert words_of(unicodedata.normalize("NFD", text)) == words_of(unicodedata.normalize("NFC", text))


def test_what_was_said_is_users_and_policys(make):
    messages = [
        make.message("system", "rules"),
        make.message("user", "find it"),
        make.message("assistant", "", ("search", '{"for": "it"}')),
        make.message("tool", "a long page"),
        make.message("assistant", "found"),
    ]
    assert words_of(dialogue_text(messages)) == ["find", "it", "search", "for", "it", "found"]
