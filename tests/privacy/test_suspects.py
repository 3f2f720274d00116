"""Hyperscan, which tells where to look, misses nothing that RE2, which looks, would find."""

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clawpipe.data.privacy.finders import _listed, seed_phrases
from clawpipe.data.privacy.redact import redact_texts
from clawpipe.data.privacy.rules import load_rules
from clawpipe.data.privacy.suspects import Suspects

RULES = [rule for rule in load_rules() if not rule.finder]  # RE2 does not look for the others
HINTS = [(number, hint) for number, rule in enumerate(RULES) for hint in rule.hints]
PARTS = [
    "ann@acme.org", "sk-" + "a1" * 12, "+49 170 1234567", "212-555-0123", "4111 1111 1111 1111", 
    "93.184.117.134", "AKIA" + "A1" * 8, "\r",
    "password=hunter22x", "--token abcdef1234567890", "postgres://u:pw123@h", "eyJhbGciOi.eyJzdWIiOi.c2ln",
    "Bearer abcdefghijklmnop1", "2001:db8:1:2:3:4:5:6", "DE89 3704 0044 0532 0130 00", "-----BEGIN PRIVATE KEY-----", "078-05-1120",
    "password is hunter2", "the password is swordfish.", "пароль: qwerty", "user: ann pw: tulip", "api key: " + "a1B2" * 6,
    "ann at acme dot com", "e2b_" + "a1" * 20, 'password was "open it"',
    " ", "\n", "\\n", "\\u0041", '"', ".", "-", "é", "\u4e2d", "\x1f", "x", "0", "(", "_", ":", "=", "\v",
]  # fmt: skip
texts = st.lists(st.lists(st.sampled_from(PARTS), max_size=6).map("".join), max_size=8)


@pytest.fixture(scope="module")
def suspects():
    return Suspects(tuple(hint for _, hint in HINTS))


@given(texts)
def test_every_text_in_which_a_rule_occurs_is_a_suspect_of_it(suspects, texts):
    found = {place: {HINTS[number][0] for number in numbers} for place, numbers in suspects.among(texts).items()}
    for place, number in _occurrences(texts):
        assert number in found.get(place, ())


def _occurrences(texts):
    query = """
        with texts as (select unnest($texts::varchar[]) as text, generate_subscripts($texts::varchar[], 1) - 1 as place),
            rules as (select unnest($rules::varchar[]) as rule, generate_subscripts($rules::varchar[], 1) - 1 as number)
        select place, number from texts, rules where regexp_matches(text, rule)"""
    return duckdb.execute(query, {"texts": texts, "rules": [rule.anywhere for rule in RULES]}).fetchall()


def test_texts_that_hold_nothing_are_no_suspects(suspects):
    words = ["The quick brown fox", "def read(path): return path", "", "1234", "Chrome/120.0.0.0 Safari", "a:b:c"] * 50
    assert suspects.among(words) == {}


@settings(max_examples=25)
@given(texts)
def test_what_stands_beside_a_text_changes_nothing_in_it(texts):
    assert redact_texts(texts).texts == [redact_texts([text]).texts[0] for text in texts]


def test_more_texts_than_one_search_takes(suspects, monkeypatch):
    monkeypatch.setattr("clawpipe.data.privacy.suspects._BLOCK", 10)
    assert list(suspects.among(["x" * 8, "ann@acme.org", "", "y", "to ben@acme.org"])) == [1, 4]


@pytest.mark.parametrize(
    "text",
    ["password=hunt\x0ber22x", "https://u:pa\x0bss1@h", "curl -u ann\x0bx:hunter22", "login a\x0bb password hunter22"],
)
def test_a_vertical_tab_hides_nothing(text):
    """It is space to Hyperscan and none to RE2."""
    assert redact_texts([text]).changed == [True]


def test_a_secret_that_follows_another_one_without_a_space(suspects):
    hashed = "$2b$10$" + "N9qo8uLOickgx2ZMRZoMye" + "IjZAgcfl7p92ldGxad68LJZdL17lhWy"
    [text] = redact_texts([hashed + "whsec_" + "iPAwX7" * 5]).texts
    assert "whsec_" not in text


def test_a_match_that_ends_a_million_times_is_one(suspects):
    texts = ["x", "sk-" + "a1" * 500_000, "ann@acme.org"]
    assert set(suspects.among(texts)) == {1, 2}


WORDS = st.lists(st.sampled_from(sorted(_listed())), min_size=12, max_size=24, unique=True)
BETWEEN = st.sampled_from([" ", "  ", ", ", ",", "\n", "\t", " 3. ", "\u2003"])
BEFORE = st.sampled_from(["", " ", "(", "“", "—", "1. ", "my wallet: ", "the of to: ", "\n", "\\n "])
AFTER = st.sampled_from(["", " ", ")", "”", "—", ".", "\n", "\\n", " it is"])


@settings(max_examples=50)
@given(WORDS, BETWEEN, BEFORE, AFTER, st.booleans())
def test_a_seed_phrase_is_found_whatever_is_beside_it(words, between, before, after, loud):
    phrase = between.join(words).upper() if loud else between.join(words)
    [(start, end)] = seed_phrases(f"{before}{phrase}{after}")
    assert f"{before}{phrase}{after}"[start:end] == phrase


def test_a_search_that_another_process_compiled_finds_the_same(suspects):
    loaded = Suspects(tuple(hint for _, hint in HINTS), suspects.search)
    assert loaded.among(PARTS) == suspects.among(PARTS)
    assert list(Suspects(("ann@",), suspects.search).among(["x", "ann@acme.org"])) == [1]
