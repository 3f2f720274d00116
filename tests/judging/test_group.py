"""The judge that ranks rollouts of an item: what it is shown, how parts become one ranking, what becomes of odd answers."""

from __future__ import annotations

import json
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clawpipe.core.conversation.messages import Message
from clawpipe.core.store.home import Home
from clawpipe.errors import BusyError
from clawpipe.play.judging.gaming import GamingSigns
from clawpipe.play.judging.group import make_group
from clawpipe.play.judging.ranks import merged, parts_of, standings
from clawpipe.play.judging.votes import VoteStore
from tests.judging.fake_judge import FakeJudge, fake_judge

ASK = (Message("system", "Be brief."), Message("user", "Count."))


@pytest.fixture(autouse=True)
def _in_home(home: Home):
    """Votes are kept below a home of the test's own."""


def rollout(text: str, number: int, group: str = "g", before: tuple[Message, ...] = ASK) -> dict[str, Any]:
    messages = [message.as_dict() for message in (*before, Message("assistant", text))]
    return {
        "trajectory_id": f"{group}-{number}",
        "group_id": group,
        "source": "rollout",
        "messages": messages,
        "turns": [{"start": 0, "end": 1, "kind": "main", "finish_reason": "stop"}],
        "kinds": None,
        "tokens": "recorded",
        "tools": "[]",
    }


def rollouts(*texts: str, **more: Any) -> list[dict[str, Any]]:
    return [rollout(text, number, **more) for number, text in enumerate(texts)]


def code_of(system: str) -> str:
    return json.loads(system[system.rindex('{"code"') :])["code"]


def by(height: Callable[[str], float]) -> Callable[[str, str], str]:
    """A judge that ranks rollouts by their last text; equal heights share a place."""

    def says(system: str, document: str) -> str:
        shown = {one["name"]: height(one["messages"][-1]["text"]) for one in json.loads(document)["rollouts"]}
        levels = sorted(set(shown.values()), reverse=True)
        ranking = [[name for name, own in shown.items() if own == level] for level in levels]
        return json.dumps({"code": code_of(system), "ranking": [one if len(one) > 1 else one[0] for one in ranking]})

    return says


def ranked(judge: FakeJudge, rows: list[dict[str, Any]], **options: Any) -> list[float | None]:
    scorer = make_group(url=judge.url, model="m", **options)
    scorer.prepare(rows)
    return [next((score.value for score in scorer.score({}, row)), None) for row in rows]


def test_one_call_ranks_a_group_and_equal_ones_once():
    with fake_judge(by(len)) as judge:
        assert ranked(judge, rollouts("aa", "a", "aaa", "aa")) == [0.5, 0.0, 1.0, 0.5]
        again = ranked(judge, [*rollouts("aaa", "aa", "aa", "a"), *rollouts("a", "bb", group="h")])
    assert again == [1.0, 0.5, 0.5, 0.0, 0.0, 1.0]
    assert len(judge.asked) == 2  # the first group again has the same rollouts
    shown = json.loads(judge.asked[0]["messages"][1]["content"])
    assert shown.keys() == {"fence", "system", "conversation", "rollouts", "end of fence"}
    assert (shown["system"], [one["text"] for one in shown["conversation"]]) == ("Be brief.", ["Count."])
    assert [one["name"] for one in shown["rollouts"]] == ["A", "B", "C"]
    assert "g-0" not in judge.asked[0]["messages"][1]["content"]


def test_each_ranking_has_another_order():
    orders = set[tuple[str, ...]]()

    def first_is_best(system: str, document: str) -> str:
        shown = json.loads(document)["rollouts"]
        orders.add(tuple(one["messages"][-1]["text"] for one in shown))
        return json.dumps({"code": code_of(system), "ranking": [one["name"] for one in shown]})

    with fake_judge(first_is_best) as judge:
        values = ranked(judge, rollouts("a", "b", "c", "d"), votes=16)
    assert len(orders) > 8
    assert max(values) - min(values) < 0.6  # whoever prefers what comes first decides little


def test_what_cannot_be_ranked_has_no_score():
    with fake_judge(by(len)) as judge:
        assert ranked(judge, rollouts("alone")) == [None]
        assert ranked(judge, rollouts("same", "same")) == [0.5, 0.5]
        imported = [row | {"source": "imported"} for row in rollouts("a", "bb")]
        assert ranked(judge, imported) == [None, None]
    assert judge.asked == []


def test_a_ranking_may_be_written_with_signs():
    says = lambda system, _: json.dumps({"code": code_of(system), "ranking": "C > A = B"})  # noqa: E731
    with fake_judge(says) as judge:
        assert sorted(ranked(judge, rollouts("a", "bb", "ccc"))) == [0.25, 0.25, 1.0]


@pytest.mark.parametrize("ranking", [["A"], ["A", "B", "C"], ["A", "A"], "AB", [["A"], []], [{"A": 1}, "B"], []])
def test_an_incomplete_ranking_is_no_vote(ranking: Any):
    with (
        fake_judge(lambda system, _: json.dumps({"code": code_of(system), "ranking": ranking})) as judge,
        pytest.raises(BusyError, match="1 of 1 groups have not one valid verdict"),
    ):
        ranked(judge, rollouts("a", "bb"))


def test_long_groups_are_ranked_in_parts_that_share_rollouts():
    texts = [f"{number:02d}{'x' * 7000}" for number in range(12)]
    with fake_judge(by(lambda text: int(text[:2]))) as judge:
        values = ranked(judge, rollouts(*texts), shown=20_000)
    sizes = [len(body["messages"][1]["content"]) for body in judge.asked]
    assert len(sizes) > 1
    assert max(sizes) < 30_000
    places = {number: value for number, value in enumerate(values) if value is not None}
    assert len(places) == 12
    concordant = sum(places[low] < places[high] for high in range(12) for low in range(high))
    assert concordant >= 0.75 * 66


def test_a_rubric_is_part_of_the_instructions():
    with fake_judge(by(len)) as judge:
        ranked(judge, rollouts("a", "bb"), rubric="Prefer {short} answers.")
        ranked(judge, rollouts("a", "bb"))
    assert "Prefer {short} answers." in judge.asked[0]["messages"][0]["content"]
    assert len(judge.asked) == 2


def test_a_group_vote_is_found_by_each_of_its_rollouts(home: Home):
    with fake_judge(by(len)) as judge:
        ranked(judge, rollouts("a", "bb"))
    (vote,) = VoteStore.of(home).every()
    assert vote.trajectories == ["g-0", "g-1"]


def test_a_ranker_by_length_is_noticed():
    def signs(height: Callable[[str], float]) -> list[str]:
        seen = GamingSigns()
        for number in range(10):
            for one in rollouts("a", "bb", "c" * 3, "b" * 9, group=f"g{number}"):
                score = {"scorer": "group", "origin": "judge", "turn": None, "value": height(one["messages"][-1]["content"])}
                seen.add(one, [score | {"evidence": "{}", "success": None}])
        return seen.warnings()

    assert signs(len) == ["group prefers length: in 60 of 60 pairs of rollouts of one item the longer one has the higher score"]
    assert signs(lambda text: text.count("b")) == []


def test_parts_hold_what_fits():
    assert parts_of([10] * 5, 100, 26, 2) == [[0, 1, 2, 3, 4]]
    assert parts_of([10] * 5, 40, 26, 2) == [[0, 1, 2, 3], [0, 1, 4]]
    assert parts_of([1] * 6, 100, 4, 2) == [[0, 1, 2, 3], [0, 1, 4, 5]]
    assert parts_of([30, 30, 30, 30], 60, 26, 2) == [[0, 1, 2], [0, 1, 3]]


def test_parts_are_merged_by_the_rollouts_that_they_share():
    """0 is the better shared one. 2 is above both, 3 below both; in the other part 4 is between them, 5 equal to the worse."""
    heights = merged([{2: 0, 0: 1, 1: 2, 3: 3}, {0: 0, 4: 1, 1: 2, 5: 2}], 2)
    assert heights == {0: 2, 1: 1, 2: Fraction(5, 2), 3: Fraction(1, 2), 4: Fraction(3, 2), 5: 1}
    assert standings(heights, [1] * 6) == [Fraction(4, 5), Fraction(3, 10), 1, 0, Fraction(3, 5), Fraction(3, 10)]


def test_equal_rollouts_count_as_many():
    assert standings({0: Fraction(1), 1: Fraction(0)}, [3, 1]) == [Fraction(2, 3), 0]


@given(st.permutations(range(9)))
def test_a_true_order_survives_a_single_part(order: list[int]):
    ranks = {member: place for place, member in enumerate(order)}
    found = standings(merged([ranks], 0), [1] * 9)
    assert sorted(range(9), key=lambda member: -found[member]) == order


@given(st.permutations(range(9)))
def test_parts_never_contradict_what_a_shared_rollout_shows(order: list[int]):
    place = {member: number for number, member in enumerate(order)}
    parts = [
        {member: sorted(place[one] for one in part).index(place[member]) for member in part}
        for part in ([0, 1, 2, 3, 4], [0, 1, 5, 6, 7, 8])
    ]
    heights = merged(parts, 2)
    for anchor in (0, 1):
        for member in range(9):
            assert (heights[member] < heights[anchor]) == (place[member] > place[anchor])
