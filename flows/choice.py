"""Choose the candidate among the policies that a night's rounds trained, and look for early signs between rounds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from clawpipe.core.config.night import NightConfig
from clawpipe.core.store.refs import DatasetRef, ModelRef, StepResult
from flows.judged import Judged
from flows.round import Round, generate_rollouts
from tasks.choice import choose_round, compare_rounds
from tasks.data import score, validate
from tasks.step import part

_PROBE = "measure"  # the rollouts that measure the last round's policy


@dataclass(frozen=True)
class OwnRollouts:
    """Rollouts that measure the policy that sampled them, with their scores."""

    trajectories: DatasetRef
    scores: DatasetRef


@dataclass
class RoundsSoFar:
    """What a night's rounds have sampled and trained. `trained` holds policies by round, e.g. round-1, in order."""

    sampled: list[tuple[str, ModelRef, OwnRollouts]] = field(default_factory=list)
    trained: dict[str, ModelRef] = field(default_factory=dict)
    compared: list[StepResult] = field(default_factory=list)  # what is seen between one round's rollouts and the next one's

    last: Round | None = None

    def measured(self, this: Round, judged: Judged) -> None:
        """Add a round's own rollouts, and compare them with those of the round before if it trained another policy."""
        self.last = this
        if samples_itself(this.config):
            place = len(judged.trajectories) - 1  # own rollouts come after stored datasets; scores are in the same order
            self._add(this, OwnRollouts(judged.trajectories[place], judged.scores[place]))

    def candidate(self) -> StepResult | None:
        """Choose the candidate, after rollouts of the last policy on the next items; None where there is nothing to choose."""
        last = self.last
        if last is None or last.config.candidate == "last" or not self.sampled or len(self.trained) < 2:
            return None
        with part(_PROBE):
            self._add(probe := _after(last, self.trained), _verified(probe))
        return choose_round(
            start=last.night.start,
            trained=self.trained,
            trajectories=[own.trajectories for _, _, own in self.sampled],
            scores=[own.scores for _, _, own in self.sampled],
            items=last.items,
            alpha=last.config.gate.alpha,
        )

    def _add(self, this: Round, own: OwnRollouts) -> None:
        name = next(reversed(self.trained), "round-0")
        if self.sampled and (before := self.sampled[-1])[0] != name:
            compared = compare_rounds(
                policies={before[0]: before[1], name: this.policy},
                trajectories=[before[2].trajectories, own.trajectories],
                scores=[before[2].scores, own.scores],
                items=this.items,
                method=this.config.train.method,
            )
            self.compared.append(compared)
        self.sampled.append((name, this.policy, own))


def samples_itself(config: NightConfig) -> bool:
    """Whether a night's rollouts measure its own policies: items drawn by difficulty would measure the draw."""
    rollouts = config.rollouts
    return rollouts is not None and not rollouts.engine.is_endpoint and rollouts.difficulty is None


def until(choice: StepResult, training_sets: Mapping[str, DatasetRef]) -> dict[str, DatasetRef]:
    """Return the datasets that the chosen policy has learnt from: rounds after its own taught it nothing."""
    of_rounds = {name: int(name.rpartition("-")[2]) for name in training_sets if name.startswith("round-")}
    return {name: rows for name, rows in training_sets.items() if of_rounds.get(name, 0) <= choice.details["round"]}


def _after(last: Round, trained: Mapping[str, ModelRef]) -> Round:
    """Return the round that would come next: the last policy on the next items in the night's order."""
    return replace(last, policy=list(trained.values())[-1], number=last.config.rounds)


def _verified(this: Round) -> OwnRollouts:
    """Generate rollouts, which nothing is trained on, and let the verifier alone score them."""
    [rollouts] = generate_rollouts(this)
    valid = validate(trajectories=rollouts).dataset
    return OwnRollouts(valid, score(trajectories=valid, items=this.items, environment=this.config.drawn).dataset)
