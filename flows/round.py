"""A round of a night: what its steps share, and the rollouts with which it begins."""

from __future__ import annotations

from dataclasses import dataclass, field

from clawpipe.core.config.night import NightConfig, Rollouts
from clawpipe.core.config.quotas import quotas, rounds_of
from clawpipe.core.store.refs import DatasetRef, ModelRef, OptimizerRef, StepResult
from clawpipe.play.rollouts.generate import plan_chunks, round_items
from flows.night import Night, Past
from tasks.rollouts import collect_rollouts, draw_items, generate_chunk
from tasks.step import together


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


def generate_rollouts(this: Round) -> list[DatasetRef]:
    """Generate groups of rollouts of the round's items with the round's policy; none for a night on stored data."""
    rollouts = this.config.rollouts
    if rollouts is None:
        return []
    environment = this.config.drawn
    items, numbers = _items_to_try(this, rollouts)
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
        for chunk in plan_chunks(numbers, rollouts)
    ]
    chunks = [result.dataset for result in together(calls)]
    return [collect_rollouts.named("generate_rollouts")(chunks=chunks).dataset]


def _items_to_try(this: Round, rollouts: Rollouts) -> tuple[DatasetRef, list[int]]:
    """Return task items, and the ordinals of the ones to roll out: the next ones in the night's order, or those drawn."""
    if rollouts.difficulty is None:
        return this.items, ordinals(this, rollouts)
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


def ordinals(this: Round, rollouts: Rollouts) -> list[int]:
    """Return the train items of a round, counted from 0; the number of rounds gives those that come after the last one's."""
    environment = this.config.drawn
    train = quotas(environment.train_items, environment.weights)
    wanted = rounds_of(rollouts.items, this.config.rounds, environment.weights)
    after = quotas(rollouts.items, environment.weights)
    return round_items(train, [*wanted, after], this.number, this.night.seed("items"))
