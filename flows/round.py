"""One round of a night, step by step: generate rollouts, score them, choose training data, train."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import NamedTuple, cast

from clawpipe.annotation.request import Role
from clawpipe.config.night import NightConfig, Rollouts
from clawpipe.config.quotas import quotas, rounds_of
from clawpipe.config.training import Combine, Train
from clawpipe.evaluation.teacher import refusal
from clawpipe.rollouts.generate import plan_chunks, round_items
from clawpipe.store.refs import DatasetRef, ModelRef, OptimizerRef, StepResult
from clawpipe.training.course import Course
from clawpipe.training.methods import needs, weights_of
from clawpipe.workers.pool import stop_server
from flows.opening import Night, Past
from tasks.data import (
    add_stored_pairs,
    clear_hints,
    compare_judges,
    compress,
    curate,
    edit,
    find_duplicates,
    find_heldout,
    render,
    score,
    sign,
    validate,
    validate_scores,
)
from tasks.distillation import annotate, probe_teacher
from tasks.evaluation import probe
from tasks.recorded import check_recorded, fit_vocabulary, recompute_logprobs
from tasks.rollouts import collect_rollouts, demonstrate, draw_items, generate_chunk, log_rollouts
from tasks.step import together
from tasks.training import train


@dataclass(frozen=True)
class Round:
    """The arguments that all steps of a round share. `number` counts from 0; `versions` holds the policies so far, newest first."""

    night: Night
    items: DatasetRef
    decontamination_items: DatasetRef  # train and held-out items, against which training data is decontaminated
    policy: ModelRef
    number: int
    versions: list[str]
    filtered: list[StepResult]  # results of the steps that filter rows, of all rounds so far
    tried: list[Past] = field(default_factory=list)  # rounds of tonight and of earlier nights, newest first
    optimizer: OptimizerRef | None = None  # its state after the rounds so far

    def record_filtered(self, result: StepResult) -> StepResult:
        """Add a result to `filtered` and return it."""
        self.filtered.append(result)
        return result

    @property
    def config(self) -> NightConfig:
        return self.night.config

    def seed(self, purpose: str) -> int:
        return self.night.seed(purpose, self.number)


@dataclass(frozen=True)
class Judged:
    """Valid trajectories and their scores, dataset by dataset."""

    trajectories: list[DatasetRef]
    scores: list[DatasetRef]
    near: list[DatasetRef] = field(default_factory=list)  # near-duplicates of each other and of held-out questions
    demonstrations: Judged | None = None  # of items that no rollout solved
    replayed: Judged | None = None  # rollouts of earlier nights
    edited: Edited | None = None  # answers that people wrote


@dataclass(frozen=True)
class Edited:
    """Rows and pairs of the answers that people wrote."""

    rows: Judged  # none for a method of pairs
    pairs: list[DatasetRef]  # for a method of pairs
    reviews: DatasetRef  # who wrote which row


@dataclass(frozen=True)
class TrainingData:
    """Rows to train on, and the training settings."""

    rows: DatasetRef
    config: Train


class Learnt(NamedTuple):
    """The policy of the next round, and the optimizer's state that belongs to it; None where no round may follow."""

    policy: ModelRef
    optimizer: OptimizerRef | None


def generate_rollouts(this: Round) -> list[DatasetRef]:
    """Generate groups of rollouts of the round's items with the round's policy; none for a night on stored data."""
    rollouts = this.config.rollouts
    if rollouts is None:
        return []
    environment = this.config.drawn
    items, ordinals = _items_to_try(this, rollouts)
    calls = [
        generate_chunk.named("generate_rollouts").call(
            items=items,
            policy=this.policy,
            environment=environment,
            config=rollouts,
            chunk=chunk,
            seed=this.seed("round"),
            runtime=this.config.runtime,
        )
        for chunk in plan_chunks(ordinals, rollouts)
    ]
    chunks = [result.dataset for result in together(calls)]
    return [collect_rollouts.named("generate_rollouts")(chunks=chunks).dataset]


def log(this: Round, rollouts: list[DatasetRef], judged: Judged) -> None:
    """Write some of the round's rollouts with their scores into the night's logs, if the settings ask for it."""
    count, file = this.config.runtime.log_rollouts, f"rollouts-{this.number + 1}.log"
    for dataset in rollouts if count else []:
        log_rollouts(night=this.night.night, file=file, rollouts=dataset, scores=judged.scores, policy=this.policy, count=count)


def _items_to_try(this: Round, rollouts: Rollouts) -> tuple[DatasetRef, list[int]]:
    """Return task items, and the ordinals of the ones to roll out: the next ones in the night's order, or those drawn."""
    if rollouts.difficulty is None:
        return this.items, _ordinals(this, rollouts)
    drawn = draw_items(
        items=this.items,
        tried=[one.trajectories for one in this.tried],
        scores=[one.scores for one in this.tried],
        earlier=[one.items for one in this.tried if one.items and rollouts.difficulty.levels],
        config=rollouts.difficulty,
        count=rollouts.items,
        seed=this.seed("items"),
    )
    return drawn.dataset, list(range(rollouts.items))


def _ordinals(this: Round, rollouts: Rollouts) -> list[int]:
    """Return the train items of a round, counted from 0; the number of rounds gives those that come after the last one's."""
    environment = this.config.drawn
    train = quotas(environment.train_items, environment.weights)
    wanted = rounds_of(rollouts.items, this.config.rounds, environment.weights)
    after = quotas(rollouts.items, environment.weights)
    return round_items(train, [*wanted, after], this.number, this.night.seed("items"))


def judge(this: Round, trajectories: list[DatasetRef]) -> Judged:
    """Validate trajectories and score them with the environment's verifier; add the stored scores."""
    environment = this.config.drawn
    valid = [this.record_filtered(validate(trajectories=dataset)).dataset for dataset in trajectories]
    others = len(valid) if _foreign_tokens(this.config) else len(this.night.stored)  # stored datasets come first
    valid[:others] = [
        this.record_filtered(fit_vocabulary(trajectories=dataset, policy=this.night.base)).dataset for dataset in valid[:others]
    ]
    stored = [validate_scores(scores=dataset).dataset for dataset in this.night.scores]
    near = _find_near(this, valid)
    judged = [
        this.record_filtered(
            score(trajectories=dataset, items=this.items, environment=environment, scorers=this.config.scorers)
        ).dataset
        for dataset in valid
    ]
    valid = _as_tokens(this, valid)
    if this.config.train.spec.uses_ratios:
        valid[:others] = [_with_logprobs(this, dataset) for dataset in valid[:others]]
    scores = [*judged, *stored]
    if stored and judged and this.config.judged:
        this.record_filtered(compare_judges(scores=scores))
    if weights_of(this.config.train)[1] > 0:  # the hints teach
        scores = [clear_hints(scores=dataset, items=this.decontamination_items).dataset for dataset in scores]
    own = valid[len(this.night.stored) :], judged[len(this.night.stored) :]
    this.tried[:0] = [Past(*one) for one in zip(*own, strict=True)]
    return Judged(valid, scores, near, _demonstrations(this, *own), _replayed(this), _edited(this, valid))


def _edited(this: Round, trajectories: list[DatasetRef]) -> Edited | None:
    """Return the answers that people wrote in place of those of the round's rows; methods that take ratios have no use for them."""
    spec = this.config.train.spec
    if this.night.reviews is None or spec.uses_ratios:
        return None
    made = this.record_filtered(edit(trajectories=trajectories, reviews=this.night.reviews))
    pairs, reviews = made.extra("pairs"), made.extra("reviews")
    if spec.pairs:
        return Edited(Judged([], []), [pairs], reviews)
    shown = render.named("render_edited")(trajectories=made.dataset, policy=this.night.base, environment=this.config.drawn).dataset
    return Edited(Judged([shown], [made.extra("scores")], _near_heldout(this, [shown])), [], reviews)


def _as_tokens(this: Round, trajectories: list[DatasetRef]) -> list[DatasetRef]:
    """Return the datasets with tokens for what is text, and with what is too long shortened, as the settings ask."""
    config, policy, environment = this.config, this.night.base, this.config.drawn
    asked = config.curation.compress
    if asked:
        budget = config.curation.budget
        calls = [
            compress(trajectories=each, policy=policy, environment=environment, config=asked, budget=budget)
            for each in trajectories
        ]
        trajectories = [this.record_filtered(result).dataset for result in calls]
    if config.train.spec.text == "none" or not (this.night.stored or _text_only(config) or asked):
        return trajectories
    return [
        this.record_filtered(render(trajectories=text, policy=policy, environment=environment)).dataset for text in trajectories
    ]


def _replayed(this: Round) -> Judged | None:
    """Return the rollouts of the earlier nights that are to be learnt from again, with the scores that they got then."""
    past = this.night.replayed
    if not past:
        return None
    named = fit_vocabulary.named("fit_replayed")
    rows = [this.record_filtered(named(trajectories=one.trajectories, policy=this.night.base)).dataset for one in past]
    if this.config.train.spec.uses_ratios:
        rows = [_with_logprobs(this, dataset) for dataset in rows]
    return Judged(rows, [one.scores for one in past], _near_heldout(this, rows))


def _demonstrations(this: Round, rollouts: list[DatasetRef], scores: list[DatasetRef]) -> Judged | None:
    """Return the environment's demonstrations of items that the round's rollouts did not solve, if the settings ask for them."""
    environment = this.config.drawn
    if not this.config.curation.demonstrations.share:
        return None
    played = demonstrate(trajectories=rollouts, scores=scores, items=this.items, environment=environment)
    shown = render.named("render_demonstrations")(
        trajectories=played.dataset, policy=this.night.base, environment=environment
    ).dataset
    verified = score.named("score_demonstrations")(trajectories=shown, items=this.items, environment=environment)
    return Judged([shown], [verified.dataset], _near_heldout(this, [shown]))


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
    if (this.night.stored or this.night.replayed or _foreign_tokens(this.config)) and data.config.spec.uses_ratios:
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
        ordinals=_ordinals(replace(this, number=config.rounds), this.night.rollouts),
        kept={name: ref for name, ref in trained.extras.items() if isinstance(ref, ModelRef)},
        environment=config.drawn,
        config=this.night.rollouts.once(config.evaluation.temperature),
        seed=this.night.seed("probe"),
        runtime=config.runtime,
    )


def _text_only(config: NightConfig) -> bool:
    return config.rollouts is not None and config.rollouts.engine.text_only


def _foreign_tokens(config: NightConfig) -> bool:
    """Whether rollouts hold tokens from an endpoint."""
    return config.rollouts is not None and config.rollouts.engine.tokens


def _with_logprobs(this: Round, trajectories: DatasetRef) -> DatasetRef:
    """Return a dataset that the night did not sample, in which unusable log-probs are recomputed."""
    recomputed = recompute_logprobs(
        trajectories=trajectories,
        start=this.night.start,
        base=this.night.base,
        known=this.night.earlier_policies,
        text=weights_of(this.config.train)[1] > 0,
        max_tokens=this.config.curation.max_tokens,
        runtime=this.config.runtime,
    )
    return this.record_filtered(recomputed).dataset


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
        near=[*_near_heldout(this, stored), *reviews],
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


def _find_near(this: Round, trajectories: list[DatasetRef]) -> list[DatasetRef]:
    """Find near-duplicates among trajectories, and near-copies of held-out questions, as the settings ask; oldest dataset first."""
    config, history, found = this.config.curation.near, this.night.history, []
    if config.duplicates:
        signed = [sign(trajectories=dataset).dataset for dataset in [*history, *trajectories]]
        duplicates = find_duplicates(
            trajectories=trajectories,
            signatures=signed[len(history) :],
            history=history,
            history_signatures=signed[: len(history)],
            threshold=config.threshold,
        )
        found.append(duplicates.dataset)
    return [*found, *_near_heldout(this, trajectories)]


def _near_heldout(this: Round, datasets: list[DatasetRef]) -> list[DatasetRef]:
    """Find near-copies of held-out questions, if the settings ask."""
    config = this.config.curation.near
    if not config.heldout:
        return []
    settings = config.model_copy(update={"history": ()})
    return [find_heldout(trajectories=each, items=this.decontamination_items, config=settings).dataset for each in datasets]


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
