"""One round of a night, step by step: rollouts, what they are worth, what is learnt from them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from clawpipe.config.night import Rollouts
from clawpipe.config.training import Combine, Train
from clawpipe.evaluation.teacher import refusal
from clawpipe.rollouts.episodes import derive_seed
from clawpipe.rollouts.generate import plan_chunks, round_items
from clawpipe.store.refs import DatasetRef, ModelRef, StepResult
from clawpipe.training.annotate_request import Role
from clawpipe.training.methods import needs, weights_of
from flows.opening import Night
from flows.steps import Steps
from tasks.data import add_stored_pairs, curate, find_duplicates, find_heldout, render, score, sign, validate, validate_scores
from tasks.distillation import annotate, probe_teacher
from tasks.rollouts import collect_rollouts, generate_chunk
from tasks.training import train


@dataclass(frozen=True)
class Round:
    """What all steps of a round are told. `number` counts from 0; `versions` are the policies' so far, the newest first."""

    do: Steps
    night: Night
    world: dict[str, Any]
    items: DatasetRef
    policy: ModelRef
    number: int
    versions: list[str]

    @property
    def rollouts(self) -> Rollouts:
        return self.night.config.rollouts or Rollouts()

    def seed(self, purpose: str) -> int:
        return derive_seed(self.night.config.seed, purpose, self.number)


@dataclass(frozen=True)
class Judged:
    """Valid trajectories and their scores, dataset by dataset."""

    trajectories: list[DatasetRef]
    scores: list[DatasetRef]
    near: list[DatasetRef] = field(default_factory=list)  # what of it is nearly the same, as each other or as what is held out


@dataclass(frozen=True)
class Lesson:
    """Rows to learn from, and how."""

    rows: DatasetRef
    config: Train


def generate_rollouts(this: Round) -> list[DatasetRef]:
    """Groups of rollouts of the round's items under the round's policy; nothing for a night on stored data."""
    config = this.night.config
    if config.rollouts is None:
        return []
    ordinals = round_items(config.environment.train_items, config.rollouts.items, this.number, config.seed)
    plan = plan_chunks(ordinals, config.rollouts)
    facts = {"items": this.items, "policy": this.policy, "config": config.rollouts, "seed": this.seed("round"), **this.world}
    chunks = this.do.map(generate_chunk, "chunk", plan, **facts)
    return [this.do(collect_rollouts, name="generate_rollouts", chunks=[chunk.dataset for chunk in chunks]).dataset]


def judge(this: Round, trajectories: list[DatasetRef]) -> Judged:
    """What keeps the contract, and what it is worth: the environment's word on rollouts, stored scores of what was imported."""
    valid = [this.do(validate, trajectories=dataset).dataset for dataset in trajectories]
    stored = [this.do(validate_scores, scores=dataset).dataset for dataset in this.night.scores]
    near = _find_near(this, valid)
    judged = [this.do(score, trajectories=dataset, items=this.items, **this.world).dataset for dataset in valid]
    if this.night.config.train.method in ("sft", "dpo") and this.night.stored:  # imitation and preferences can use text as well
        valid = [this.do(render, trajectories=dataset, policy=this.night.base, **this.world).dataset for dataset in valid]
    return Judged(valid, [*judged, *stored], near)


def choose_lesson(this: Round, judged: Judged) -> Lesson | None:
    """What is to be learnt from the round: nothing where curation leaves no row, or distillation has no teacher that is any good.

    Raises:
        DataError: the first round's teacher is no good: there is no point in waiting for a second.
    """
    config = this.night.config.train
    chosen = _curate(this, judged, config)
    if not chosen.rows_out or not weights_of(config)[1]:
        return Lesson(chosen.dataset, config) if chosen.rows_out else None
    figures = _probe(this, judged).details
    if figures["allowed"]:
        return Lesson(chosen.dataset, config)
    if this.number == 0:
        raise refusal(figures, config.opd)
    if not weights_of(config)[0]:
        return None
    undistilled = config.model_copy(update={"combine": Combine(w_rl=config.combine.w_rl, w_opd=0.0)})
    chosen = _curate(this, judged, undistilled, name="curate_without_hints")  # rows that a hint alone had kept leave again
    return Lesson(chosen.dataset, undistilled) if chosen.rows_out else None


def learn(this: Round, judged: Judged, lesson: Lesson) -> ModelRef:
    """The policy of the next round."""
    seed = this.seed("train") % 2**32  # numpy takes no larger one
    token_scores = _annotate(this, judged, lesson) if needs(lesson.config) else None
    facts: dict[str, Any] = {"config": lesson.config, "temperature": this.rollouts.temperature, "seed": seed}
    facts |= this.world if lesson.config.method == "dpo" else {}  # pairs may be text, which is yet to be rendered
    return this.do(train, samples=lesson.rows, start=this.policy, token_scores=token_scores, **facts).model


def _curate(this: Round, judged: Judged, config: Train, name: str = "") -> StepResult:
    """Samples, or for dpo preference pairs, to which stored ones are added."""
    stored, curation = this.night.pairs if config.method == "dpo" else [], this.night.config.curation
    made = []
    if judged.trajectories or not stored:
        facts = {"method": config.method, "weights": weights_of(config), "hint": config.opd.hint}
        known = this.versions if curation.needs_versions else []  # what is not asked for is in no key
        rows = {"trajectories": judged.trajectories, "scores": judged.scores, "items": this.items}
        made.append(this.do(curate, name=name, config=curation, versions=known, near=judged.near, **rows, **facts))
    if not stored:
        return made[0]
    return this.do(add_stored_pairs, made=[result.dataset for result in made], stored=stored, items=this.items)


def _find_near(this: Round, trajectories: list[DatasetRef]) -> list[DatasetRef]:
    """What is nearly the same, if the settings ask; datasets are the oldest first."""
    config, found = this.night.config.curation.near, []
    if config.duplicates:
        history = this.night.history
        rows = {"trajectories": trajectories, "history": history, "threshold": config.threshold}
        signed = [this.do(sign, trajectories=dataset).dataset for dataset in [*history, *trajectories]]
        known, new = signed[: len(history)], signed[len(history) :]
        found.append(this.do(find_duplicates, signatures=new, history_signatures=known, **rows).dataset)
    if config.heldout:
        settings = config.model_copy(update={"history": ()})
        found += [this.do(find_heldout, trajectories=one, items=this.items, config=settings).dataset for one in trajectories]
    return found


def _probe(this: Round, judged: Judged) -> StepResult:
    return this.do(
        probe_teacher,
        items=this.items,
        trajectories=judged.trajectories,
        scores=judged.scores,
        student=this.policy,
        teacher=this.night.teacher or this.policy,
        rollouts=this.rollouts,
        config=this.night.config.train.opd,
        seed=this.seed("probe"),
        **this.world,
    )


def _annotate(this: Round, judged: Judged, lesson: Lesson) -> DatasetRef:
    return this.do(
        annotate,
        rows=lesson.rows,
        policies=_asked(this, lesson.config),
        scores=judged.scores,
        items=this.items,
        config=lesson.config.opd,
        pack_tokens=lesson.config.pack_tokens,
        temperature=this.rollouts.temperature,
        **this.world,
    ).dataset


def _asked(this: Round, config: Train) -> dict[Role, ModelRef]:
    """Who is asked about the round's tokens. A preference is judged by how far the policy moved since the round began, a penalty
    by how far it is from the base."""
    reference = this.policy if config.method == "dpo" else this.night.base
    teacher = this.night.teacher or this.policy
    asked: dict[Role, ModelRef] = {"reference": reference, "proximal": this.policy, "student": this.policy, "teacher": teacher}
    wanted = needs(config)
    wanted |= {"student"} if "teacher" in wanted else set()
    return {role: policy for role, policy in asked.items() if role in wanted}
