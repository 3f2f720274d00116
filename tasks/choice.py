"""Steps compare_rounds and choose_round: what a night's own rollouts say of the policies that sampled them."""

from __future__ import annotations

from clawpipe.core.config.methods import MethodName
from clawpipe.core.store.artifacts import Store
from clawpipe.core.store.datasets import dataset_rows
from clawpipe.core.store.home import Home
from clawpipe.core.store.open import open_store
from clawpipe.core.store.refs import DatasetRef, ModelRef, StepResult
from clawpipe.learn.evaluation.drift import signs_between
from clawpipe.learn.evaluation.rounds import START
from clawpipe.learn.evaluation.rounds import choose_round as choose
from clawpipe.learn.evaluation.sampled import lengths, numbered, read_sampled
from clawpipe.play.judging.gaming.between import sample_of
from clawpipe.play.judging.gaming.between import signs_between as signs_of_gaming
from clawpipe.play.judging.gaming.phrases import Said
from clawpipe.play.judging.judged_scores import judged_scores
from tasks.step import step


@step()
def compare_rounds(
    policies: dict[str, ModelRef], trajectories: list[DatasetRef], scores: list[DatasetRef], items: DatasetRef, method: MethodName
) -> StepResult:
    """Look for signs between the rollouts of two rounds: `policies` by the round that trained each, the earlier one first. The
    method says what to change.

    details["signs"] are early signs of a training that went wrong, details["gaming"] signs that a judge is gamed.
    """
    store = open_store(Home.from_env())
    by_round = {int(name.rpartition("-")[2]): policy for name, policy in policies.items()}
    sampled = read_sampled(store, by_round, trajectories, scores, items)
    before, after = sampled.policies
    both = lengths(store, trajectories[0]), lengths(store, trajectories[-1])
    signs = signs_between(before, after, both, method)
    gaming = signs_of_gaming(*(_judged(store, *made) for made in zip(trajectories, scores, strict=True)))
    return StepResult(
        rows_in=sampled.rollouts,
        rows_out=sampled.verified,
        filtered=_unverified(sampled.rollouts - sampled.verified),
        details={name: found for name, found in {"signs": signs, "gaming": gaming}.items() if found},
    )


@step()
def choose_round(
    start: ModelRef,
    trained: dict[str, ModelRef],
    trajectories: list[DatasetRef],
    scores: list[DatasetRef],
    items: DatasetRef,
    alpha: float,
) -> StepResult:
    """Choose the candidate among the rounds' policies; the output is its ref, the details say why."""
    store = open_store(Home.from_env())
    policies = numbered(start, trained)
    sampled = read_sampled(store, policies, trajectories, scores, items)
    choice = choose(sampled.policies[START], sampled.policies[1:], alpha)
    return StepResult(
        output=policies[choice.round],
        rows_in=sampled.rollouts,
        rows_out=sampled.verified,
        filtered=_unverified(sampled.rollouts - sampled.verified),
        details=choice.model_dump(mode="json") | ({"warnings": [choice.reason]} if choice.all_lost else {}),
    )


def _judged(store: Store, trajectories: DatasetRef, scores: DatasetRef) -> list[Said]:
    said = (row for rows in judged_scores(store, [scores]) for row in rows)
    columns = ["trajectory_id", "source", "messages", "turns", "kinds", "tokens"]
    return sample_of(dataset_rows(store, trajectories, columns), said)


def _unverified(count: int) -> dict[str, int]:
    return {"not verified": count} if count else {}
