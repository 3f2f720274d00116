"""The whole loop on one page: from task items, or from stored trajectories, to a verdict.

`the_night` is the only description of a night that there is: `clawpipe run` and deployments run it (`nightly`, below),
and `clawpipe plan` walks through it without running a step.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from prefect import flow
from prefect.task_runners import ThreadPoolTaskRunner

from clawpipe.config import NightConfig, load_config
from clawpipe.config.night import Rollouts
from clawpipe.environments.discovery import source_digest
from clawpipe.evaluation.verdict import Decision
from clawpipe.rollouts.episodes import derive_seed
from clawpipe.rollouts.generate import plan_chunks, round_items
from clawpipe.store.refs import DatasetRef, ModelRef, StepResult
from flows.closing import close_night
from flows.opening import Night, open_night
from flows.steps import Steps
from tasks.data import curate, score, validate
from tasks.evaluation import evaluate, gate
from tasks.items import make_items
from tasks.registry import promote, publish_lineage, register
from tasks.rollouts import collect_rollouts, generate_chunk
from tasks.training import train

CHUNKS_AT_ONCE = 64  # all of a round: those that are generated together wait for one another


RUNNER: Any = ThreadPoolTaskRunner(max_workers=CHUNKS_AT_ONCE)  # Any: Prefect declares its runners invariant


@flow(name="nightly-retrain", task_runner=RUNNER, persist_result=False)
def nightly(config: str = "configs/nightly.yaml", overrides: list[str] | None = None) -> dict[str, Any]:
    """One honest night: roll out, curate, train, evaluate, decide, register, promote.

    Args:
        config: YAML file of the night's settings, relative to the project.
        overrides: settings on top of it, e.g. ["train.method=sft", "seed=3"].
    """
    with open_night(load_config(Path(config), overrides or [])) as night:
        the_night(night.do, night)
        return close_night(night).model_dump(mode="json")


def the_night(do: Steps, night: Night) -> None:
    """Rounds of learning, one evaluation, one decision."""
    config = night.config
    world = {"environment": config.environment, "source": source_digest(config.environment.name)}
    items = do(make_items, **world).dataset

    policy, lessons = night.start, {"items": items}
    for number in range(config.rounds):
        with do.within(f"round-{number + 1}"):
            trajectories = [*night.stored, *generate_rollouts(do, config, world, items, policy, number)]
            samples = refine(do, config, world, items, trajectories)
            if samples.rows_out:
                lessons[f"round-{number + 1}"] = samples.dataset
                policy = learn(do, config, samples.dataset, policy, number)

    contenders = night.contenders(policy)
    results = {role: evaluate_held_out(do, config, world, items, model, role) for role, model in contenders.items()}
    outcomes = {role: result.dataset for role, result in results.items()}
    verdict = do(gate, policies=contenders, results=outcomes, config=config.gate, confidence=config.evaluation.confidence).details

    if verdict["decision"] != Decision.REJECT and policy.adapter:
        datasets = {**lessons, "heldout": results["candidate"].extras["trajectories"]}
        version = do(register, facts=night.facts, candidate=policy, datasets=datasets, verdict=verdict, **world)
        if verdict["decision"] != Decision.HOLD:
            do(promote, facts=night.facts, version=version.details["model"]["version"], verdict=verdict)
    do(publish_lineage, facts=night.facts, outside=night.outside)


def generate_rollouts(
    do: Steps, config: NightConfig, world: dict[str, Any], items: DatasetRef, policy: ModelRef, number: int
) -> list[DatasetRef]:
    """Groups of rollouts of the round's items under the round's policy; nothing for a night on stored data."""
    if config.rollouts is None:
        return []
    seed = derive_seed(config.seed, "round", number)
    ordinals = round_items(config.environment.train_items, config.rollouts.items, number, config.seed)
    plan = plan_chunks(ordinals, config.rollouts)
    chunks = do.map(generate_chunk, "chunk", plan, items=items, policy=policy, config=config.rollouts, seed=seed, **world)
    return [do(collect_rollouts, name="generate_rollouts", chunks=[chunk.dataset for chunk in chunks]).dataset]


def refine(do: Steps, config: NightConfig, world: dict[str, Any], items: DatasetRef, trajectories: list[DatasetRef]) -> StepResult:
    """From raw trajectories to samples."""
    valid = [do(validate, trajectories=dataset).dataset for dataset in trajectories]
    scores = [do(score, trajectories=dataset, items=items, **world).dataset for dataset in valid]
    return do(curate, trajectories=valid, scores=scores, items=items, config=config.curation, method=config.train.method)


def learn(do: Steps, config: NightConfig, samples: DatasetRef, policy: ModelRef, number: int) -> ModelRef:
    """The policy of the next round."""
    temperature = (config.rollouts or Rollouts()).temperature
    seed = derive_seed(config.seed, "train", number) % 2**32  # numpy takes no larger one
    return do(train, samples=samples, start=policy, config=config.train, temperature=temperature, seed=seed).model


def evaluate_held_out(
    do: Steps, config: NightConfig, world: dict[str, Any], items: DatasetRef, model: ModelRef, role: str
) -> StepResult:
    """One model on the held-out items; the seed is the same for every model."""
    rollouts = config.rollouts or Rollouts()
    seed = derive_seed(config.seed, "heldout")
    return do(
        evaluate,
        name=f"evaluate/{role}",
        items=items,
        policy=model,
        rollouts=rollouts,
        config=config.evaluation,
        seed=seed,
        **world,
    )
