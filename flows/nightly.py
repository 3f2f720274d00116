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
from clawpipe.nights.conclude import conclude
from clawpipe.rollouts.episodes import derive_seed
from clawpipe.rollouts.generate import round_items, split_evenly
from clawpipe.store.refs import DatasetRef, ModelRef
from flows.opening import Night, open_night
from flows.steps import Steps
from tasks.data import curate, score, validate
from tasks.evaluation import evaluate, gate
from tasks.items import make_items
from tasks.registry import promote, publish_lineage, register
from tasks.rollouts import collect_rollouts, generate_chunk
from tasks.training import train

CHUNKS_AT_ONCE = 8  # tasks in flight; the generation workers take one each


@flow(name="nightly-retrain", task_runner=ThreadPoolTaskRunner(max_workers=CHUNKS_AT_ONCE), persist_result=False)
def nightly(config: str = "configs/nightly.yaml", overrides: list[str] | None = None) -> dict[str, Any]:
    """One honest night: roll out, curate, train, evaluate, decide, register, promote.

    Args:
        config: YAML file of the night's settings, relative to the project.
        overrides: settings on top of it, e.g. ["train.method=sft", "seed=3"].
    """
    with open_night(load_config(Path(config), overrides or [])) as night:
        the_night(night.do, night)
        return conclude(night.journal).model_dump(mode="json")


def the_night(do: Steps, night: Night) -> None:
    """Rounds of learning, one evaluation, one decision."""
    config = night.config
    world = {"environment": config.environment, "source": source_digest(config.environment.name)}
    items = do(make_items, **world).output

    policy = night.start
    for number in range(config.rounds):
        with do.within(f"round-{number + 1}"):
            trajectories = [*night.stored, *generate_rollouts(do, config, world, items, policy, number)]
            policy = learn(do, config, world, items, policy, trajectories, number)

    results = {role: results_of(do, config, world, items, model, role) for role, model in night.contenders(policy).items()}
    verdict = do(gate, policies=night.contenders(policy), results=results, config=config.gate, confidence=config.evaluation.confidence)
    if verdict.details.get("decision") != "REJECT":
        version = do(register, night=night.facts, candidate=policy, items=items, results=results["candidate"], verdict=verdict)
        if verdict.details.get("decision") != "HOLD":
            do(promote, night=night.facts, version=version, verdict=verdict)
    do(publish_lineage, night=night.facts)


def generate_rollouts(
    do: Steps, config: NightConfig, world: dict[str, Any], items: DatasetRef, policy: ModelRef, number: int
) -> list[DatasetRef]:
    """Groups of rollouts of the round's items under the round's policy; nothing for a night on stored data."""
    if config.rollouts is None:
        return []
    seed = derive_seed(config.seed, "round", number)
    ordinals = round_items(config.environment.train_items, config.rollouts.items, number, config.seed)
    parts = split_evenly(ordinals, config.rollouts.chunks)
    chunks = do.map(generate_chunk, "ordinals", parts, items=items, policy=policy, config=config.rollouts, seed=seed, **world)
    return [do(collect_rollouts, name="generate_rollouts", chunks=[chunk.output for chunk in chunks]).output]


def learn(
    do: Steps,
    config: NightConfig,
    world: dict[str, Any],
    items: DatasetRef,
    policy: ModelRef,
    trajectories: list[DatasetRef],
    number: int,
) -> ModelRef:
    """From trajectories to the next policy; the same one where they teach nothing."""
    valid = [do(validate, trajectories=dataset).output for dataset in trajectories]
    scores = [do(score, trajectories=dataset, items=items, **world).output for dataset in valid]
    samples = do(curate, trajectories=valid, scores=scores, items=items, config=config.curation, method=config.train.method)
    if samples.rows_in and not samples.rows_out:
        return policy
    temperature = (config.rollouts or Rollouts()).temperature
    seed = derive_seed(config.seed, "train", number)
    return do(train, samples=samples.output, start=policy, config=config.train, temperature=temperature, seed=seed).output


def results_of(
    do: Steps, config: NightConfig, world: dict[str, Any], items: DatasetRef, model: ModelRef, role: str
) -> DatasetRef:
    """One model's results on the held-out items; the seed is the same for every model."""
    rollouts = config.rollouts or Rollouts()
    seed = derive_seed(config.seed, "heldout")
    evaluated = do(
        evaluate, name=f"evaluate/{role}", items=items, policy=model, rollouts=rollouts, config=config.evaluation, seed=seed, **world
    )
    return evaluated.output
