"""The benchmark of many nights: what it asks, and what counts as forgotten."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from clawpipe.core.conversation.messages import Message

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))


@pytest.fixture
def years() -> ModuleType:
    import years  # pyright: ignore[reportMissingImports]

    return years


def served(years: ModuleType, right: dict[str, int]) -> dict[str, Any]:
    """A night's line, with so many of ten items right of each kind."""
    items = {kind: {f"{kind}-{number}": number < right.get(kind, 5) for number in range(10)} for kind in years.KINDS}
    success = sum(right.get(kind, 5) for kind in years.KINDS) / 40
    return {"night": 1, "served": {"success": success, "high": success + 0.15, "right": items}}


def test_a_kind_is_lost_where_its_items_surely_are(years: ModuleType):
    steady = served(years, {})
    assert years.losses([steady, served(years, {"upper": 4, "lower": 6})]) == []
    best, worse = served(years, {"upper": 10, "lower": 0}), served(years, {"upper": 0, "lower": 10})
    assert [(one["lost"], one["from"], one["to"]) for one in years.losses([steady, best, worse])] == [("upper", 1.0, 0.0)]
    assert [one["lost"] for one in years.losses([served(years, dict.fromkeys(years.KINDS, 10)), steady])] == ["all"]


def test_the_mix_drifts_and_bad_nights_are_asked_for(years: ModuleType):
    asked = [years.tonight(number, True, [*years.KINDS]) for number in range(1, 31)]
    assert set(asked[0]["mix"]) == set(years.KINDS)
    assert all(1 <= len(one["mix"]) <= 2 for one in asked[1:])
    assert all(sum(kind in one["mix"] for one in asked[1:13]) < 12 for kind in years.KINDS)
    assert [one["verdicts"] for one in asked if one["verdicts"] != "right"] == ["inverted", "none", "random"]
    assert {one["verdicts"] for one in (years.tonight(number, False, [*years.KINDS]) for number in range(1, 31))} == {"right"}


@pytest.mark.parametrize(("verdicts", "values"), [("right", (1.0, 0.5)), ("inverted", (0.0, 0.5)), ("none", (0.0, 0.0))])
def test_only_rewards_of_training_are_wrong(years: ModuleType, tmp_path: Path, verdicts: str, values: tuple[float, float]):
    from years_task import CharactersEnvironment  # pyright: ignore[reportMissingImports]

    (tmp_path / "tonight.json").write_text(json.dumps({"mix": {"digits": 1.0}, "verdicts": verdicts}))
    environment = CharactersEnvironment(str(tmp_path / "tonight.json"))
    [item] = environment.items("train", 1, 0)
    answers = [Message("assistant", "12"), Message("assistant", "1a")]
    assert tuple(environment.verify(item, [answer]).value for answer in answers) == values
    heldout = environment.items("heldout", 8, 0)
    assert [one.slice for one in heldout] == [*years.KINDS] * 2
    assert environment.verify(heldout[2], [Message("assistant", "7")]).success


def test_the_shop_asks_for_tonights_tools_alone(tmp_path: Path):
    from years_task import TOOLS, DriftingShopEnvironment  # pyright: ignore[reportMissingImports]

    (tmp_path / "tonight.json").write_text(json.dumps({"mix": {"calc": 1.0, "price": 3.0}}))
    environment = DriftingShopEnvironment(str(tmp_path / "tonight.json"))
    train = environment.items("train", 16, 0)
    assert ([item.slice for item in train].count("calc"), [item.slice for item in train].count("price")) == (4, 12)
    assert [item.ordinal for item in train] == [*range(16)]
    assert len({item.item_id for item in train}) == 16
    assert {item.slice for item in environment.items("heldout", 4, 0)} == set(TOOLS)


def test_no_question_is_on_both_sides(tmp_path: Path):
    from years_task import CharactersEnvironment  # pyright: ignore[reportMissingImports]

    (tmp_path / "tonight.json").write_text(json.dumps({"mix": {"lower": 1.0}, "verdicts": "right"}))
    environment = CharactersEnvironment(str(tmp_path / "tonight.json"))
    train, heldout = ({item.identity for item in environment.items(split, 4000, 7)} for split in ("train", "heldout"))
    assert not train & heldout
