import random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from clawpipe.core.store.datasets import read_dataset
from clawpipe.data.similarity.duplicates import near_duplicates
from clawpipe.data.similarity.signatures import BANDS, SCHEMA, band_keys, sign
from clawpipe.data.similarity.words import word_hashes


def found(shelf, new, earlier=(), **settings_):
    result = near_duplicates(shelf.store, new, earlier, threads=1, **settings_)
    rows = read_dataset(shelf.store, result.dataset).to_pylist()
    return {(row["trajectory_id"], row["repeats"]): row for row in rows}


def sets_of_words(text):
    words = ("please " + text).split()
    return {tuple(words[i : i + 5]) for i in range(len(words) - 4)}


def similarity(one, other):
    left, right = sets_of_words(one), sets_of_words(other)
    return len(left & right) / len(left | right)


def planted(make, families=12):
    """Originals, each with copies of which 0 to 4 of 160 words are changed: similarities from 1 down to about 0.65."""
    texts = {}
    for family in range(families):
        original = make.text(family, 160)
        texts[f"{family:02d}-0"] = original
        for words in range(5):
            texts[f"{family:02d}-{words + 1}"] = make.changed(original, words, words)
    return texts


def test_planted_copies_above_the_threshold_are_found(shelf, make):
    texts = planted(make)
    pairs = found(shelf, [shelf.signed([make.row(name, text) for name, text in texts.items()])])
    alike = {(later, first): similarity(texts[later], texts[first]) for later in texts for first in texts if later > first}
    expected = {pair for pair, value in alike.items() if value >= 0.8}
    assert set(pairs) <= expected  # what decides is exact
    assert len(pairs) >= 0.95 * len(expected)
    assert {pair for pair in expected if alike[pair] >= 0.95} <= set(pairs)
    assert all(row["similarity"] == pytest.approx(alike[pair]) for pair, row in pairs.items())
    assert len(expected) > 40
    assert any(0.6 < value < 0.8 for value in alike.values())


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 1000), files=st.integers(1, 5))
def test_order_of_rows_and_number_of_files_do_not_matter(shelf, make, seed, files):
    rows = [make.row(name, text) for name, text in planted(make, 4).items()]
    expected = near_duplicates(shelf.store, [shelf.signed(rows)], threads=1)
    random.Random(seed).shuffle(rows)
    assert near_duplicates(shelf.store, [shelf.signed(rows, files)], threads=2).dataset.digest == expected.dataset.digest


def test_new_rows_are_compared_with_all_nights(shelf, make):
    rows = [make.row(name, text) for name, text in planted(make, 6).items()]
    random.Random(1).shuffle(rows)
    nights = [shelf.signed(rows[:12]), shelf.signed(rows[12:24]), shelf.signed(rows[24:])]
    together = found(shelf, nights)
    apart = {}
    for number, night in enumerate(nights):
        apart |= found(shelf, [night], nights[:number])
    assert together.keys() == apart.keys()
    first = found(shelf, nights[:1])
    assert first == {pair: row for pair, row in together.items() if pair in first}
    names = [{row["trajectory_id"] for row in part} for part in (rows[:12], rows[12:24], rows[24:])]
    assert all(row["within"] == any({*pair} <= own for own in names) for pair, row in apart.items())


def test_the_earlier_dataset_comes_first_whatever_the_ids(shelf, make):
    old, new = shelf.signed([make.row("z", make.text(1))]), shelf.signed([make.row("a", make.text(1))])
    assert set(found(shelf, [new], [old])) == {("a", "z")}
    assert set(found(shelf, [old], [new])) == {("z", "a")}


def test_a_trajectory_repeats_itself_in_no_dataset(shelf, make):
    one = make.row("a", make.text(1))
    assert found(shelf, [shelf.signed([one]), shelf.signed([one, make.row("b", make.text(2))])]) == {}


def test_items_are_told_apart(shelf, make):
    rows = [make.row("a", make.text(1), "i"), make.row("b", make.text(1), "i"), make.row("c", make.text(1), "j")]
    pairs = found(shelf, [shelf.signed(rows)])
    assert {pair: row["same_item"] for pair, row in pairs.items()} == {("b", "a"): True, ("c", "a"): False, ("c", "b"): False}


def test_what_is_there_a_thousand_times_costs_no_million_pairs(shelf, make):
    rows = [make.row(f"{number:04d}", make.text(1), f"i{number % 50}") for number in range(1000)]
    pairs = found(shelf, [shelf.signed(rows)])
    assert {later for later, _ in pairs} == {row["trajectory_id"] for row in rows[1:]}
    assert len(pairs) < 20 * len(rows)


def test_nothing_said_repeats_nothing(shelf, make):
    rows = [make.row(name, "...", question="!") for name in "ab"]
    signed = shelf.signed(rows)
    assert read_dataset(shelf.store, signed.signatures)["keys"].to_pylist() == [[], []]
    assert found(shelf, [signed]) == {}


def test_no_rows_at_all(shelf):
    assert found(shelf, [shelf.signed([])]) == {}


def test_signatures_do_not_depend_on_the_files_of_rows(shelf, make):
    rows = [make.row(name, text) for name, text in planted(make, 3).items()]
    one, other = (sign(shelf.store, shelf.trajectories(rows, files)) for files in (1, 4))
    assert one.dataset.digest == other.dataset.digest
    assert (one.rows_in, one.rows_out) == (len(rows), len(rows))
    table = read_dataset(shelf.store, one.dataset)
    assert table.schema.equals(SCHEMA)
    assert {len(keys) for keys in table["keys"].to_pylist()} == {BANDS}


def test_a_band_is_shared_as_often_as_theory_says(make):
    """1 - (1 - s^8)^16 for similarity s; 200 pairs of s = 0.8 share one with probability 0.947 each: 177 is 3 sigma below."""
    base = [word_hashes([f"{pair}/{word}" for word in range(90)]) for pair in range(200)]
    lefts, rights = band_keys([one[:80] for one in base]), band_keys([one[:][10:90] for one in base])  # 70 of 90: 0.78
    shared = sum(any(a == b for a, b in zip(left, right, strict=True)) for left, right in zip(lefts, rights, strict=True))
    probability = 1 - (1 - (70 / 90) ** 8) ** 16
    assert abs(shared - 200 * probability) < 4 * (200 * probability * (1 - probability)) ** 0.5
