"""Levels that move by pass rates, against moves that are written by hand."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clawpipe.core.config.generation import Difficulty
from clawpipe.play.rollouts.levels import Won, level_of, levels_reached, part_of

BY_LEVEL = Difficulty(levels=True)


def rows(*slices: str) -> list[dict[str, Any]]:
    return [{"item_id": name, "slice": name} for name in slices]


def tried(name: str, *verdicts: int) -> dict[str, Won]:
    return {name: Won(sum(verdicts), len(verdicts))}


SUMS = rows("sums/level-1", "sums/level-2", "sums/level-3")


@pytest.mark.parametrize(
    ("rounds", "level"),
    [
        ([], 1),
        ([tried("sums/level-1", 1, 1, 1, 1)], 2),
        ([tried("sums/level-1", 1, 1, 1, 1, 0)], 1),  # 0.8 is not above 0.8
        ([tried("sums/level-1", 0, 0)], 1),  # there is none below
        ([tried("sums/level-2", 1, 1), tried("sums/level-1", 1, 1)], 3),  # the newest stands first
        ([tried("sums/level-3", 1), tried("sums/level-2", 1), tried("sums/level-1", 1)], 3),  # nor one above
        ([tried("sums/level-2", 0, 0, 0), tried("sums/level-1", 1)], 1),
        ([tried("sums/level-2", 1, 1)], 1),  # a level that was not the part's own does not move it
        ([tried("calc/level-1", 1, 1)], 1),
        ([tried("sums/level-1", 1, 1), {}], 2),
    ],
)
def test_a_part_moves_by_one_level_a_round(rounds, level):
    assert levels_reached(SUMS, rounds, BY_LEVEL) == {"sums": level}


def test_parts_move_by_themselves_and_others_have_no_level():
    every = [*SUMS, *rows("legs/level-2", "legs/level-5", "plain")]
    first = tried("sums/level-1", 1, 1) | tried("legs/level-2", 1, 0) | tried("plain", 1)
    assert levels_reached(every, [first], BY_LEVEL) == {"legs": 2, "sums": 2}
    assert levels_reached(every, [tried("legs/level-2", 1)], BY_LEVEL) == {"legs": 5, "sums": 1}


def test_without_the_setting_there_are_no_levels():
    assert levels_reached(SUMS, [tried("sums/level-1", 1)], Difficulty()) == {}


WON = st.integers(0, 9).flatmap(lambda won: st.builds(Won, st.just(won), st.integers(max(won, 1), 9)))


@given(st.lists(st.dictionaries(st.sampled_from([row["slice"] for row in SUMS]), WON)))
def test_a_level_is_always_one_that_there_is(rounds):
    assert levels_reached(SUMS, rounds, BY_LEVEL)["sums"] in (1, 2, 3)


@pytest.mark.parametrize(
    ("name", "part", "level"),
    [
        ("sums/level-2", "sums", 2),
        ("mix/sums/level-10", "mix/sums", 10),
        ("sums/levels", "sums/levels", None),
        ("level-2", "level-2", None),
    ],
)
def test_a_level_stands_at_the_end_of_a_slice(name, part, level):
    assert (part_of(name), level_of(name)) == (part, level)
