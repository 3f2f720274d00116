"""What a round decides to learn from, with steps that only answer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

import pytest

from clawpipe.core.config.night import NightConfig
from clawpipe.core.store.refs import DatasetRef, ModelRef, OptimizerRef, StepResult
from clawpipe.errors import DataError
from clawpipe.learn.evaluation.verdict.looks import Looks
from clawpipe.model.policy.version import base_ref
from clawpipe.play.rollouts.generate import round_items
from clawpipe.record.nights.record import Incumbent
from flows.judged import Judged, judge
from flows.learning import TrainingData, choose_training_data, learn
from flows.night import Night
from flows.round import Round
from tasks.step import Call, run_by

BASE = base_ref("random", "b" * 64, "pythonic", "float32")
START = BASE.model_copy(update={"digest": "a" * 64, "adapter": True, "policy_version": "start"})
ITEMS, TRAJECTORIES, SCORES = (DatasetRef(name=name, digest=name, rows=4) for name in ("task_items", "trajectories", "scores"))
JUDGED = Judged([TRAJECTORIES], [SCORES])
GOOD = {"allowed": True, "n": 16}
BAD = {"allowed": False, "n": 16, "teacher_success": 0.4, "student_success": 0.3, "gain": 0.1, "gain_low": -0.1}


@dataclass
class Answering:
    """Steps that record how they were called. A curated dataset is named by the weights that it was made with."""

    probe: dict[str, Any] = field(default_factory=lambda: GOOD)
    rows: int = 4
    optimizer: OptimizerRef | None = None
    calls: list[tuple[str, dict[str, Any]]] = field(default_factory=list)

    def run(self, call: Call) -> StepResult:
        name = call.task.name
        self.calls.append((call.name, call.arguments))
        if name == "train":
            return StepResult(output=START, extras={"optimizer": self.optimizer} if self.optimizer else {})
        details = self.probe if name == "probe_teacher" else {}
        digest = f"{name} {call.arguments['weights']}" if name == "curate" else name
        return StepResult(output=DatasetRef(name=name, digest=digest, rows=self.rows), rows_out=self.rows, details=details)

    def run_together(self, calls: Sequence[Call]) -> list[StepResult]:
        return [self.run(call) for call in calls]

    @property
    def names(self) -> list[str]:
        return [name for name, _ in self.calls]

    def inputs(self, name: str) -> dict[str, Any]:
        return dict(self.calls)[name]


T = TypeVar("T")


def asking(do: Answering, work: Callable[..., T], *args: Any) -> T:
    """What a part of the round comes to when its steps are answered by `do`."""
    with run_by(do):
        return work(*args)


def round_of(
    *, number: int = 0, teacher: ModelRef | None = None, pairs: tuple[str, ...] = (), least: int = 1, **train: Any
) -> Round:
    config = NightConfig.model_validate({"train": train, "curation": {"min_samples": least}})
    stored = [DatasetRef(name="preference_pairs", digest=digest, rows=2) for digest in pairs]
    night = Night(
        config=config,
        night="n",
        label="n",
        base=BASE,
        champion=None,
        stored=[],
        scores=[],
        pairs=stored,
        history=[],
        teacher=teacher,
        ledger=Looks(Path("nowhere"), "model", "environment"),
        earlier=(),
        seen={},
    )
    return Round(night, ITEMS, ITEMS, START, number, ["start"], filtered=[])


@pytest.mark.parametrize("method", ["sft", "grpo", "ppo", "dpo", "kto"])
def test_a_method_without_a_teacher_asks_for_none(method: str):
    do = Answering()
    data = asking(do, choose_training_data, round_of(method=method), JUDGED)
    assert data is not None
    assert do.names == ["curate"]


def test_nothing_to_learn_from_is_no_lesson():
    do = Answering(rows=0)
    assert asking(do, choose_training_data, round_of(method="opd"), JUDGED) is None
    assert do.names == ["curate"]


@pytest.mark.parametrize("method", ["grpo", "dpo", "opd", "combine"])
def test_a_round_with_fewer_rows_than_asked_for_trains_on_none(method: str):
    do = Answering(rows=4)
    assert asking(do, choose_training_data, round_of(method=method, least=5), JUDGED) is None
    assert do.names == ["curate"]
    assert asking(Answering(rows=4), choose_training_data, round_of(method=method, least=4), JUDGED) is not None


@pytest.mark.parametrize("method", ["opd", "combine"])
def test_a_good_teacher_is_taken(method: str):
    do = Answering()
    this = round_of(method=method)
    data = asking(do, choose_training_data, this, JUDGED)
    assert data is not None
    assert data.config == this.night.config.train
    assert do.names == ["curate", "probe_teacher"]
    asked = do.inputs("probe_teacher")
    assert (asked["student"], asked["teacher"], asked["trajectories"], asked["scores"]) == (START, START, [TRAJECTORIES], [SCORES])


@pytest.mark.parametrize("method", ["opd", "combine"])
def test_a_bad_teacher_ends_a_night_that_has_learnt_nothing_yet(method: str):
    this = replace(round_of(method=method), policy=BASE)  # what the night starts from
    with pytest.raises(DataError, match="not clearly better"):
        asking(Answering(BAD), choose_training_data, this, JUDGED)


UNTRIED = {"allowed": False, "n": 0, "untried": True}


def test_untried_hints_leave_combine_its_scores():
    """A night on captured conversations ended with exit code 65: they have no task items."""
    do, this = Answering(UNTRIED), replace(round_of(method="combine"), policy=BASE)
    data = asking(do, choose_training_data, this, JUDGED)
    assert data is not None
    assert (data.config.combine.w_rl, data.config.combine.w_opd) == (1.0, 0.0)
    assert do.names == ["curate", "probe_teacher", "curate_without_hints"]


def test_hints_that_nobody_could_try_are_no_lesson_by_themselves():
    with pytest.raises(DataError, match="probe_items: 0"):
        asking(Answering(UNTRIED), choose_training_data, replace(round_of(method="opd"), policy=BASE), JUDGED)


def test_a_bad_teacher_leaves_combine_its_rewards():
    assert asking(Answering(BAD), choose_training_data, round_of(number=1, method="opd"), JUDGED) is None
    assert asking(Answering(BAD), choose_training_data, round_of(number=1, method="combine", combine={"w_rl": 0.0}), JUDGED) is None
    do = Answering(BAD)
    data = asking(do, choose_training_data, round_of(number=1, method="combine", combine={"w_rl": 0.5}), JUDGED)
    assert data is not None
    assert (data.config.combine.w_rl, data.config.combine.w_opd) == (0.5, 0.0)
    assert data.rows.digest == "curate (0.5, 0.0)"
    assert do.names == ["curate", "probe_teacher", "curate_without_hints"]


def test_combine_without_its_hinted_part_asks_no_teacher():
    do = Answering()
    assert asking(do, choose_training_data, round_of(method="combine", combine={"w_opd": 0.0}), JUDGED) is not None
    assert do.names == ["curate"]


def test_stored_pairs_join_those_of_the_round_for_dpo_alone():
    do = Answering()
    data = asking(do, choose_training_data, round_of(pairs=("p",), method="dpo"), JUDGED)
    assert data is not None
    assert data.rows.name == "add_stored_pairs"
    assert [ref.name for ref in do.inputs("add_stored_pairs")["made"]] == ["curate"]
    alone = Answering()
    asking(alone, choose_training_data, round_of(pairs=("p",), method="dpo"), Judged([], []))
    assert alone.names == ["add_stored_pairs"]
    other = Answering()
    asking(other, choose_training_data, round_of(pairs=("p",), method="grpo"), JUDGED)
    assert other.names == ["curate"]


TEACHER = BASE.model_copy(update={"digest": "t" * 64, "policy_version": "teacher"})


@pytest.mark.parametrize(
    ("train", "asked"),
    [
        ({"method": "grpo", "loss": {"kl_coef": 0.1}}, {"reference": BASE}),
        ({"method": "grpo", "loss": {"tis_cap": 2.0}}, {"proximal": START}),
        ({"method": "dpo"}, {"reference": BASE}),
        ({"method": "kto"}, {"reference": BASE}),
        ({"method": "opd"}, {"student": START, "teacher": TEACHER}),
        ({"method": "combine", "loss": {"kl_coef": 0.1}}, {"reference": BASE, "student": START, "teacher": TEACHER}),
    ],
)
def test_each_policy_is_asked_in_its_role(train: dict[str, Any], asked: dict[str, ModelRef]):
    do = Answering()
    this = round_of(teacher=TEACHER, **train)
    asking(do, learn, this, JUDGED, TrainingData(TRAJECTORIES, this.night.config.train))
    assert do.names == ["annotate", "train"]
    assert do.inputs("annotate")["policies"] == asked
    assert do.inputs("train")["token_scores"].name == "annotate"


CHAMPION = BASE.model_copy(update={"digest": "c" * 64, "adapter": True, "policy_version": "champion"})


@pytest.mark.parametrize("train", [{"method": "dpo"}, {"method": "kto"}, {"method": "grpo", "loss": {"kl_coef": 0.1}}], ids=str)
def test_the_reference_of_each_round_is_where_the_night_started(train: dict[str, Any]):
    """It was the start of the round, and moved with what it should hold."""
    do, this = Answering(), round_of(number=1, start_from="champion", **train)
    this = replace(this, night=replace(this.night, champion=Incumbent(version="1", night="m", policy=CHAMPION)))
    asking(do, learn, this, JUDGED, TrainingData(TRAJECTORIES, this.night.config.train))
    assert do.inputs("annotate")["policies"]["reference"] == CHAMPION
    assert do.inputs("train")["night_start"] == (None if train["method"] == "grpo" else CHAMPION)


@pytest.mark.parametrize(("method", "most"), [("dpo", 4096), ("sft", None)])
def test_pairs_may_be_as_long_as_other_rows(method: str, most: int | None):
    """Those of text have no length before they are rendered; other rows were filtered by curation."""
    do, this = Answering(), round_of(method=method)
    asking(do, learn, this, JUDGED, TrainingData(TRAJECTORIES, this.night.config.train))
    assert do.inputs("train")["max_tokens"] == most


STATE = OptimizerRef(name="optimizer", digest="o", night="n", policy_version="start")


def test_a_round_takes_over_the_optimizer_and_hands_it_on():
    do, this = Answering(optimizer=STATE), replace(round_of(number=1), optimizer=STATE.model_copy(update={"digest": "earlier"}))
    learnt = asking(do, learn, this, JUDGED, TrainingData(TRAJECTORIES, this.night.config.train))
    assert (learnt.policy, learnt.optimizer) == (START, STATE)
    asked = do.inputs("train")
    assert asked["optimizer"].digest == "earlier"
    assert (asked["course"].start, asked["course"].rounds, asked["course"].number) == (BASE.policy_version, 3, 1)


def test_nights_with_other_labels_or_seeds_are_other_courses():
    this = round_of()
    others = [replace(this.night, label="m"), replace(this.night, config=this.config.model_copy(update={"seed": 1}))]
    do = [Answering() for _ in range(3)]
    for answers, night in zip(do, [this.night, *others], strict=True):
        asking(answers, learn, replace(this, night=night), JUDGED, TrainingData(TRAJECTORIES, this.night.config.train))
    assert len({answers.inputs("train")["course"].night for answers in do}) == 3


def test_data_that_needs_no_annotation_is_trained_on_at_once():
    do = Answering()
    this = round_of(method="grpo")
    asking(do, learn, this, JUDGED, TrainingData(TRAJECTORIES, this.night.config.train))
    assert do.names == ["train"]
    assert do.inputs("train")["token_scores"] is None


def test_a_plain_night_compares_nothing():
    do = Answering()
    assert asking(do, judge, round_of(), [TRAJECTORIES]).near == []
    assert do.names == ["validate", "score"]


def test_near_duplicates_are_searched_on_request():
    do = Answering()
    this = round_of(method="sft")
    near = {"curation": {"near": {"duplicates": True, "heldout": True, "history": ["old"]}}}
    old = DatasetRef(name="trajectories", digest="old", rows=4)
    night = replace(this.night, config=NightConfig.model_validate(near), history=[old])
    this = replace(this, night=night)
    judged = asking(do, judge, this, [TRAJECTORIES])
    assert do.names == ["validate", "sign", "sign", "find_duplicates", "find_heldout", "score"]
    asked = do.inputs("find_duplicates")
    assert (asked["history"], len(asked["history_signatures"])) == ([old], 1)
    assert [ref.name for ref in asked["trajectories"]] == ["validate"]
    assert do.inputs("find_heldout")["items"] == ITEMS
    asking(do, choose_training_data, this, judged)
    assert [ref.name for ref in do.inputs("curate")["near"]] == ["find_duplicates", "find_heldout"]


def test_what_a_training_kept_is_tried_on_items_of_no_round():
    do = Answering()
    this = round_of(method="grpo", probe_steps=2)
    asking(do, learn, this, JUDGED, TrainingData(TRAJECTORIES, this.night.config.train))
    assert do.names == ["train", "probe"]
    config, asked = this.night.config, do.inputs("probe")
    wanted = [[32]] * config.rounds
    of_rounds = {
        ordinal
        for number in range(config.rounds)
        for ordinal in round_items([config.environment.train_items], wanted, number, this.night.seed("items"))
    }
    assert len(asked["ordinals"]) == 32
    assert not of_rounds & set(asked["ordinals"])
    assert (asked["config"].group_size, asked["config"].temperature) == (1, config.evaluation.temperature)
