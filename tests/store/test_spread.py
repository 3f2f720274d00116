"""Parts of a step are called one after another, each when its turn comes, unless the block says who else calls them."""

from __future__ import annotations

from pathlib import Path

import pytest

from clawpipe.core.store.artifacts import Store
from clawpipe.core.store.spread import in_parts, is_spread, spread_to

called: list[int] = []


def part(store: Store, number: int) -> str:
    called.append(number)
    return f"{number} in {store.root.name}"


@pytest.fixture
def store(tmp_path: Path) -> Store:
    called.clear()
    return Store(tmp_path / "here")


def test_here_each_part_waits_for_its_turn(store: Store):
    parts = in_parts(store, part, [{"number": 1}, {"number": 2}])
    assert (next(parts), called) == ("1 in here", [1])
    assert (next(parts), called) == ("2 in here", [1, 2])


def test_a_block_says_who_calls_them(store: Store, tmp_path: Path):
    other = Store(tmp_path / "there")
    with spread_to(lambda function, calls: (function(other, **one) for one in calls)):
        assert is_spread()
        assert list(in_parts(store, part, [{"number": 3}])) == ["3 in there"]
    assert not is_spread()
    assert list(in_parts(store, part, [{"number": 4}])) == ["4 in here"]
