"""The choice of the candidate in a night, with steps that only answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from clawpipe.core.config.night import NightConfig
from clawpipe.core.store.refs import DatasetRef, ModelRef, StepResult
from flows.choice import RoundsSoFar, until
from flows.judged import Judged
from tasks.step import Call, run_by
from tests.flows.test_round import BASE, ITEMS, START, round_of

ENDPOINT = {"name": "openai", "url": ["http://127.0.0.1:1/v1"], "model": "m"}


def rows(name: str) -> DatasetRef:
    return DatasetRef(name=name, digest=name, rows=4)


def trained(name: str) -> ModelRef:
    return START.model_copy(update={"digest": name, "policy_version": name})


@dataclass
class Answering:
    """Steps that record how they were called; the chosen round is 1."""

    calls: list[tuple[str, dict[str, Any]]] = field(default_factory=list)

    def run(self, call: Call) -> StepResult:
        self.calls.append((call.name, call.arguments))
        if call.task.name == "choose_round":
            return StepResult(output=trained("one"), details={"round": 1})
        return StepResult(output=rows(call.name))

    def run_together(self, calls: Sequence[Call]) -> list[StepResult]:
        return [self.run(call) for call in calls]

    @property
    def names(self) -> list[str]:
        return [name for name, _ in self.calls]


def night(config: dict[str, Any], trains: Sequence[str | None]) -> tuple[Answering, StepResult | None]:
    """Walk through rounds that train these policies, None for a round that trains nothing; rollouts follow stored ones."""
    do, rounds, policy = Answering(), RoundsSoFar(), BASE
    first = round_of()
    settings = {"rounds": len(trains), "rollouts": {"chunks": 1, "items": 4}, **config}
    this = replace(first, policy=BASE, night=replace(first.night, config=NightConfig.model_validate(settings)))
    with run_by(do):
        for number, name in enumerate(trains):
            this = replace(this, number=number, policy=policy)
            own = [rows(f"rollouts-{number}")] if this.config.rollouts else []
            stored = [rows("imported")]
            rounds.measured(this, Judged([*stored, *own], [rows("verdicts"), *(rows(f"scores-{number}") for _ in own)]))
            if name:
                policy = rounds.trained[f"round-{number + 1}"] = trained(name)
        return do, rounds.candidate()


def test_the_last_policy_is_measured_on_the_next_items():
    do, choice = night({}, ["one", "two"])
    assert do.names == [
        "compare_rounds",
        *(f"measure/{step}" for step in ("generate_rollouts", "generate_rollouts", "validate", "score", "compare_rounds")),
        "choose_round",
    ]
    asked = dict(do.calls)
    assert choice is not None
    assert choice.model == trained("one")
    generated = do.calls[1][1]
    assert (generated["policy"], generated["chunk"].ordinals) == (trained("two"), _ordinals(2))
    assert asked["measure/score"]["scorers"] == ()
    chosen = asked["choose_round"]
    assert (chosen["start"], chosen["trained"]) == (BASE, {"round-1": trained("one"), "round-2": trained("two")})
    assert [ref.digest for ref in chosen["trajectories"]] == ["rollouts-0", "rollouts-1", "measure/validate"]
    assert [ref.digest for ref in chosen["scores"]] == ["scores-0", "scores-1", "measure/score"]


def _ordinals(number: int) -> tuple[int, ...]:
    from clawpipe.play.rollouts.generate import round_items

    config = NightConfig().environment
    return tuple(round_items([config.train_items], [[4]] * (number + 1), number, round_of().night.seed("items")))


def test_rounds_are_compared_where_one_trained_in_between():
    do, _ = night({}, ["one", None, "three"])
    compared = [arguments["policies"] for name, arguments in do.calls if name.endswith("compare_rounds")]
    assert compared == [
        {"round-0": BASE, "round-1": trained("one")},
        {"round-1": trained("one"), "round-3": trained("three")},
    ]


@pytest.mark.parametrize(
    ("config", "trains"),
    [
        ({"rounds": 1}, ["one"]),
        ({}, [None, "two"]),  # one policy: nothing to choose from
        ({"candidate": "last"}, ["one", "two"]),
        ({"rollouts": None, "trajectories": ["a" * 64], "train": {"method": "sft"}}, ["one", "two"]),
        (
            {
                "rollouts": {"engine": ENDPOINT},
                "train": {"method": "sft"},
            },
            ["one", "two"],
        ),
    ],
)
def test_a_night_without_a_choice_generates_nothing_for_one(config: dict[str, Any], trains: list[str | None]):
    do, choice = night(config, trains)
    assert choice is None
    assert {name for name in do.names if name != "compare_rounds"} == set()


def test_what_later_rounds_learnt_from_is_not_registered():
    sets = {"items": ITEMS, **{f"round-{number}": rows(str(number)) for number in (1, 2, 10)}}
    assert list(until(StepResult(details={"round": 1}), sets)) == ["items", "round-1"]
    assert list(until(StepResult(details={"round": 2}), sets)) == ["items", "round-1", "round-2"]
    assert list(until(StepResult(details={"round": 10}), sets)) == list(sets)


def test_the_setting_is_in_the_name_of_nights_that_set_it():
    assert "candidate" not in NightConfig().result_fields()
    assert "candidate" in NightConfig(candidate="last").result_fields()
