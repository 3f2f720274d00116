"""What a round learns from before anybody has chosen: valid trajectories, with tokens, and their scores."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

from clawpipe.core.config.night import NightConfig
from clawpipe.core.store.refs import DatasetRef
from clawpipe.learn.training.methods import weights_of
from flows.night import Past
from flows.round import Round
from tasks.data import (
    clear_hints,
    compare_judges,
    compress,
    edit,
    find_duplicates,
    find_heldout,
    render,
    score,
    sign,
    validate,
    validate_scores,
)
from tasks.recorded import fit_vocabulary, recompute_logprobs
from tasks.rollouts import demonstrate, log_rollouts


@dataclass(frozen=True)
class Judged:
    """Valid trajectories and their scores, dataset by dataset."""

    trajectories: list[DatasetRef]
    scores: list[DatasetRef]
    near: list[DatasetRef] = field(default_factory=list)  # near-duplicates of each other and of held-out questions
    items: list[DatasetRef] = field(default_factory=list)  # of earlier nights
    demonstrations: Judged | None = None  # of items that no rollout solved
    replayed: Judged | None = None  # rollouts of earlier nights
    edited: Edited | None = None  # answers that people wrote


@dataclass(frozen=True)
class Edited:
    """Rows and pairs of the answers that people wrote."""

    rows: Judged  # none for a method of pairs
    pairs: list[DatasetRef]  # for a method of pairs
    reviews: DatasetRef  # who wrote which row


class Valid(NamedTuple):
    """Datasets of a round that become valid trajectories: those that the settings name, and its own rollouts."""

    stored: list[DatasetRef]
    rolled: list[DatasetRef]

    @property
    def all(self) -> list[DatasetRef]:
        return [*self.stored, *self.rolled]

    def each(self, change: Callable[[list[DatasetRef]], list[DatasetRef]]) -> Valid:
        return Valid(change(self.stored), change(self.rolled))


def judge(this: Round, rolled: list[DatasetRef]) -> Judged:
    """Validate the stored trajectories and the rollouts, and score them with the environment's verifier; add the stored scores."""
    valid = Valid(this.night.stored, rolled).each(partial(_validated, this))
    valid = _with_tokens_of_others(this, valid, partial(_fitted, this))
    stored = [validate_scores(scores=dataset).dataset for dataset in this.night.scores]
    near = _find_near(this, valid.all)
    judged = valid.each(partial(_scored, this))
    valid = valid.each(partial(_compressed, this)).each(partial(_rendered, this))
    if this.config.train.spec.uses_ratios:
        valid = _with_tokens_of_others(this, valid, partial(_with_logprobs, this))
    scores = [*judged.all, *stored]
    if stored and judged.all and this.config.judged:
        this.record_filtered(compare_judges(scores=scores))
    if weights_of(this.config.train)[1] > 0:  # the hints teach
        scores = [clear_hints(scores=dataset, items=this.decontamination_items).dataset for dataset in scores]
    this.tried[:0] = [Past(*one) for one in zip(valid.rolled, judged.rolled, strict=True)]
    shown = _demonstrations(this, valid.rolled, judged.rolled)
    return Judged(valid.all, scores, near, demonstrations=shown, replayed=_replayed(this), edited=_edited(this, valid.all))


def log(this: Round, rollouts: list[DatasetRef], judged: Judged) -> None:
    """Write some of the round's rollouts with their scores into the night's logs, if the settings ask for it."""
    count, file = this.config.runtime.log_rollouts, f"rollouts-{this.number + 1}.log"
    for dataset in rollouts if count else []:
        log_rollouts(night=this.night.night, file=file, rollouts=dataset, scores=judged.scores, policy=this.policy, count=count)


def _with_tokens_of_others(this: Round, valid: Valid, change: Callable[[list[DatasetRef]], list[DatasetRef]]) -> Valid:
    """Change the datasets whose tokens the night did not sample: stored ones, and rollouts with tokens from an endpoint."""
    return Valid(change(valid.stored), change(valid.rolled) if foreign_tokens(this.config) else valid.rolled)


def _validated(this: Round, datasets: list[DatasetRef]) -> list[DatasetRef]:
    return [this.record_filtered(validate(trajectories=dataset)).dataset for dataset in datasets]


def _fitted(this: Round, datasets: list[DatasetRef]) -> list[DatasetRef]:
    policy = this.night.base
    return [this.record_filtered(fit_vocabulary(trajectories=dataset, policy=policy)).dataset for dataset in datasets]


def _scored(this: Round, datasets: list[DatasetRef]) -> list[DatasetRef]:
    items, environment, scorers = this.items, this.config.drawn, this.config.scorers
    calls = [score(trajectories=each, items=items, environment=environment, scorers=scorers) for each in datasets]
    return [this.record_filtered(result).dataset for result in calls]


def _compressed(this: Round, datasets: list[DatasetRef]) -> list[DatasetRef]:
    """Shorten what is too long, if the settings ask for it."""
    config, policy, environment = this.config, this.night.base, this.config.drawn
    asked = config.curation.compress
    if not asked:
        return datasets
    budget = config.curation.budget
    calls = [compress(trajectories=each, policy=policy, environment=environment, config=asked, budget=budget) for each in datasets]
    return [this.record_filtered(result).dataset for result in calls]


def _rendered(this: Round, datasets: list[DatasetRef]) -> list[DatasetRef]:
    """Give what is text its tokens, if the method can use them."""
    config, policy, environment = this.config, this.night.base, this.config.drawn
    some_are_text = this.night.stored or _text_only(config) or config.curation.compress
    if config.train.spec.text == "none" or not some_are_text:
        return datasets
    return [this.record_filtered(render(trajectories=each, policy=policy, environment=environment)).dataset for each in datasets]


def _with_logprobs(this: Round, datasets: list[DatasetRef]) -> list[DatasetRef]:
    """Recompute log-probs that cannot be used."""
    calls = [
        recompute_logprobs(
            trajectories=each,
            start=this.night.start,
            base=this.night.base,
            known=this.night.earlier_policies,
            text=weights_of(this.config.train)[1] > 0,
            max_tokens=this.config.curation.max_tokens,
            runtime=this.config.runtime,
        )
        for each in datasets
    ]
    return [this.record_filtered(result).dataset for result in calls]


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
    return Edited(Judged([shown], [made.extra("scores")], near_heldout(this, [shown])), [], reviews)


def _replayed(this: Round) -> Judged | None:
    """Return the rollouts of the earlier nights that are to be learnt from again, with the scores that they got then."""
    past = this.night.replayed
    if not past:
        return None
    rows = [_with_own_tokens(this, one) for one in past]
    items = list({one.items.digest: one.items for one in past if one.items}.values())
    return Judged(rows, [one.scores for one in past], near_heldout(this, rows), items)


def _with_own_tokens(this: Round, one: Past) -> DatasetRef:
    """Return a round's rollouts with tokens and log-probs of tonight's base, as those have that its policies sampled here."""
    if one.sampled == this.night.base.base:
        return one.trajectories
    named, policy = fit_vocabulary.named("fit_replayed"), this.night.base
    rows = this.record_filtered(named(trajectories=one.trajectories, policy=policy)).dataset
    return _with_logprobs(this, [rows])[0] if this.config.train.spec.uses_ratios else rows


def _demonstrations(this: Round, rollouts: list[DatasetRef], scores: list[DatasetRef]) -> Judged | None:
    """Return the environment's demonstrations of items that the round's rollouts did not solve, if the settings ask for them."""
    environment = this.config.drawn
    if not this.config.curation.demonstrations.share or not rollouts:
        return None
    played = demonstrate(trajectories=rollouts, scores=scores, items=this.items, environment=environment)
    shown = render.named("render_demonstrations")(
        trajectories=played.dataset, policy=this.night.base, environment=environment
    ).dataset
    verified = score.named("score_demonstrations")(trajectories=shown, items=this.items, environment=environment)
    return Judged([shown], [verified.dataset], near_heldout(this, [shown]))


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
            runtime=this.config.runtime,
        )
        found.append(duplicates.dataset)
    return [*found, *near_heldout(this, trajectories)]


def near_heldout(this: Round, datasets: list[DatasetRef]) -> list[DatasetRef]:
    """Find near-copies of held-out questions, if the settings ask."""
    config = this.config.curation.near
    if not config.heldout:
        return []
    settings = config.model_copy(update={"history": ()})
    return [find_heldout(trajectories=each, items=this.decontamination_items, config=settings).dataset for each in datasets]


def _text_only(config: NightConfig) -> bool:
    return config.rollouts is not None and config.rollouts.engine.text_only


def foreign_tokens(config: NightConfig) -> bool:
    """Whether rollouts hold tokens from an endpoint."""
    return config.rollouts is not None and config.rollouts.engine.tokens
