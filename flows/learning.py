"""What a round learns: choose its training data, and train."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple, cast

from clawpipe.core.config.training import Combine, Train
from clawpipe.core.store.refs import DatasetRef, ModelRef, OptimizerRef, StepResult
from clawpipe.learn.annotation.request import Role
from clawpipe.learn.evaluation.teacher import refusal
from clawpipe.learn.training.course import Course
from clawpipe.learn.training.methods import needs, weights_of
from clawpipe.play.workers.pool import stop_server
from flows.judged import Judged, foreign_tokens, near_heldout
from flows.round import Round, ordinals
from tasks.data import add_stored_pairs, curate
from tasks.distillation import annotate, probe_teacher
from tasks.evaluation import probe
from tasks.recorded import check_recorded
from tasks.training import train


@dataclass(frozen=True)
class TrainingData:
    """Rows to train on, and the training settings."""

    rows: DatasetRef
    config: Train


class Learnt(NamedTuple):
    """The policy of the next round, and the optimizer's state that belongs to it; None where no round may follow."""

    policy: ModelRef
    optimizer: OptimizerRef | None


def choose_training_data(this: Round, judged: Judged) -> TrainingData | None:
    """Return the round's training data; None where curation leaves too few rows, or the teacher is no better than the policy.

    Raises:
        DataError: the teacher is no better before anything was learnt: another round would not change that. Where no hint could be
        tried, combine learns from the scores alone.
    """
    config, least = this.config.train, this.config.curation.min_samples
    chosen = _curate(this, judged, config)
    if not chosen.rows_out >= least:  # `>=` is what a plan's unknown counts can answer
        return None
    if not weights_of(config)[1]:
        return TrainingData(chosen.dataset, config)
    figures = _probe(this, judged).details
    if figures["allowed"]:
        return TrainingData(chosen.dataset, config)
    learns_otherwise = weights_of(config)[0] > 0
    if this.policy == this.night.start and not (figures.get("untried") and learns_otherwise):
        raise refusal(figures, config.opd)
    if not learns_otherwise:
        return None
    undistilled = config.model_copy(update={"combine": Combine(w_rl=config.combine.w_rl, w_opd=0.0)})
    chosen = _curate(this, judged, undistilled, name="curate_without_hints")  # drops rows that only a hint had kept
    return TrainingData(chosen.dataset, undistilled) if chosen.rows_out >= least else None


def learn(this: Round, judged: Judged, data: TrainingData) -> Learnt:
    """Train on the data, and return what the next round goes on from.

    Raises:
        DataError: stored log-probs, or those of an endpoint, are not those of the policies named beside them.
    """
    if (
        this.night.stored or foreign_tokens(this.config)
    ) and data.config.spec.uses_ratios:  # what this home sampled, it has checked
        known = [*this.night.earlier_policies, this.policy]
        check_recorded(samples=data.rows, start=this.night.start, base=this.night.base, known=known, runtime=this.config.runtime)
    stop_server()
    trained = train(
        samples=data.rows,
        start=this.policy,
        token_scores=_annotate(this, judged, data) if needs(data.config) else None,
        config=data.config,
        temperature=this.night.rollouts.temperature,
        seed=this.seed("train") % 2**32,  # numpy takes no larger one
        runtime=this.config.runtime,
        rendered_as=this.config.drawn if data.config.spec.pairs else None,  # pairs may be text that is yet to be rendered
        max_tokens=this.config.curation.max_tokens if data.config.spec.pairs else None,  # and nobody knows its length before
        course=_course(this),
        optimizer=this.optimizer,
        night_start=this.night.start if data.config.spec.compares_with_start else None,
    )
    if data.config.probe_steps:
        _probe_snapshots(this, trained)
    return Learnt(trained.model, cast(OptimizerRef | None, trained.extras.get("optimizer")))


def _course(this: Round) -> Course:
    start = this.night.start.policy_version
    return Course(seed=this.night.seed("optimizer"), start=start, rounds=this.config.rounds, number=this.number)


def _probe_snapshots(this: Round, trained: StepResult) -> None:
    """Try the policies after every few optimizer steps on the items that come after those of all rounds."""
    config = this.config
    probe(
        items=this.items,
        ordinals=ordinals(replace(this, number=config.rounds), this.night.rollouts),
        kept={name: ref for name, ref in trained.extras.items() if isinstance(ref, ModelRef)},
        environment=config.drawn,
        config=this.night.rollouts.once(config.evaluation.temperature),
        seed=this.night.seed("probe"),
        runtime=config.runtime,
    )


def _curate(this: Round, judged: Judged, config: Train, name: str = "curate") -> StepResult:
    """Curate samples, or preference pairs for dpo, and add the stored pairs."""
    stored, curation = this.night.pairs if config.spec.pairs else [], this.config.curation
    written = judged.edited.pairs if judged.edited else []
    if stored and not judged.trajectories:
        return _with_stored_pairs(this, [], stored, _reviews(this, judged))
    nothing = Judged([], [])
    shown, replayed = judged.demonstrations or nothing, judged.replayed or nothing
    edited = judged.edited.rows if judged.edited else nothing
    made = curate.named(name)(
        trajectories=[*judged.trajectories, *shown.trajectories, *edited.trajectories],
        scores=[*judged.scores, *shown.scores, *edited.scores, *replayed.scores],
        items=this.decontamination_items,
        config=curation,
        method=config.method,
        weights=weights_of(config),
        hint=config.opd.hint,
        versions=_known_versions(this),
        near=[*judged.near, *shown.near, *edited.near, *replayed.near, *_reviews(this, judged)],
        replayed=replayed.trajectories,
        replayed_items=replayed.items,
        normalise=config.loss.normalise,
        runtime=this.config.runtime,
    )
    this.record_filtered(made)
    return _with_stored_pairs(this, [made.dataset], [*stored, *written], _reviews(this, judged)) if stored or written else made


def _reviews(this: Round, judged: Judged) -> list[DatasetRef]:
    """Return what people decided about rows."""
    written = [judged.edited.reviews] if judged.edited else []
    return [this.night.reviews, *written] if this.night.reviews else []


def _with_stored_pairs(this: Round, made: list[DatasetRef], stored: list[DatasetRef], reviews: list[DatasetRef]) -> StepResult:
    joined = add_stored_pairs(
        made=made,
        stored=stored,
        items=this.decontamination_items,
        config=this.config.curation,
        versions=_known_versions(this),
        near=[*near_heldout(this, stored), *reviews],
    )
    return this.record_filtered(joined)


def _known_versions(this: Round) -> list[str]:
    """Return the policy versions if a setting needs them: an unused argument must not change a step's key."""
    if not this.config.curation.needs_versions:
        return []
    if not this.night.replayed:
        return this.versions
    earlier = [one.trained for one in this.night.replayed if one.trained]
    return list(dict.fromkeys([*this.versions, *earlier, this.night.base.policy_version]))


def _probe(this: Round, judged: Judged) -> StepResult:
    return probe_teacher(
        items=this.items,
        trajectories=judged.trajectories,
        scores=judged.scores,
        student=this.policy,
        teacher=this.night.teacher or this.policy,
        environment=this.config.drawn,
        rollouts=this.night.rollouts,
        config=this.config.train.opd,
        seed=this.seed("probe"),
        runtime=this.config.runtime,
    )


def _annotate(this: Round, judged: Judged, data: TrainingData) -> DatasetRef:
    return annotate(
        rows=data.rows,
        policies=_policies_to_score(this, data.config),
        scores=judged.scores,
        items=this.items,
        environment=this.config.drawn,
        config=data.config.opd,
        pack_tokens=data.config.pack_tokens,
        temperature=this.night.rollouts.temperature,
        runtime=this.config.runtime,
    ).dataset


def _policies_to_score(this: Round, config: Train) -> dict[Role, ModelRef]:
    """Return the policies that score the round's tokens, by role. The reference is the night's start in every round: one that moved
    with the rounds would let each of them go as far again."""
    reference, teacher = this.night.start, this.night.teacher or this.policy
    asked: dict[Role, ModelRef] = {"reference": reference, "proximal": this.policy, "student": this.policy, "teacher": teacher}
    wanted = needs(config)
    wanted |= {"student"} if "teacher" in wanted else set()
    return {role: policy for role, policy in asked.items() if role in wanted}
