"""Sessions until a first reply satisfies three times in a row; and people who ask alone."""

import pytest

from clawpipe.errors import ConfigError
from clawpipe.play.environments.tastes import PEOPLE, TastesEnvironment
from clawpipe.start.simulation.satisfaction import sessions_until_satisfied

YES, NO = True, False


@pytest.mark.parametrize(
    ("firsts", "expected"),
    [
        ([YES, YES, YES], 0),
        ([NO, YES, YES, NO, YES, YES, YES, NO], 4),
        ([YES, YES], None),
        ([], None),
        ([NO] * 70 + [YES] * 3, None),  # of 72 sessions two are left
        ([NO] * 69 + [YES] * 3, 69),
    ],
)
def test_sessions_until_three_in_a_row_satisfy(firsts, expected):
    assert sessions_until_satisfied(firsts) == expected


def test_one_person_asks_alone_and_may_be_told_of():
    alone = TastesEnvironment(person="Dev")
    items = alone.items("train", 80, 0)
    assert {item.slice for item in items} == {"units"}
    assert alone.preamble() == []
    assert alone.distinct_items("train") * len(PEOPLE) == TastesEnvironment().distinct_items("train")
    [told] = TastesEnvironment(person="Dev", told=True).preamble()
    assert told.content == "Dev likes metric units."
    assert not {item.identity for item in items} & {item.identity for item in alone.items("heldout", 80, 0)}


@pytest.mark.parametrize("options", [{"person": "Zoe"}, {"told": True}])
def test_a_person_who_is_not_there_is_refused(options):
    with pytest.raises(ConfigError, match="no such person"):
        TastesEnvironment(**options)
