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
from clawpipe.store.refs import DatasetRef, ModelRef, StepResult
from flows.closing import close_night
from flows.opening import Night, open_night
from flows.round import Round, choose_lesson, generate_rollouts, judge, learn
from flows.steps import Steps
from tasks.evaluation import evaluate, gate
from tasks.export import export, measure_fidelity
from tasks.items import make_items
from tasks.registry import promote, publish_lineage, register

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
    versions = [policy.policy_version]  # the newest first
    for number in range(config.rounds):
        with do.within(f"round-{number + 1}"):
            this = Round(do, night, world, items, policy, number, versions)
            judged = judge(this, [*night.stored, *generate_rollouts(this)])
            lesson = choose_lesson(this, judged)
            if lesson:
                lessons[f"round-{number + 1}"] = lesson.rows
                policy = learn(this, judged, lesson)
                versions = list(dict.fromkeys([policy.policy_version, *versions]))

    served = release(do, config, night, policy)
    contenders = night.contenders(served)
    results = {role: evaluate_held_out(do, config, world, items, model, role) for role, model in contenders.items()}
    outcomes = {role: result.dataset for role, result in results.items()}
    heldout = results["candidate"].extras["trajectories"]
    terms = {"config": config.gate, "confidence": config.evaluation.confidence, "max_divergence": config.serving.max_divergence}
    if served != policy:
        terms["fidelity"] = do(measure_fidelity, trained=policy, served=served, base=night.base, heldout=heldout).details
    verdict = do(gate, policies=contenders, results=outcomes, **terms).details

    if verdict["decision"] != Decision.REJECT and served.stored:
        datasets = {**lessons, "heldout": heldout}
        version = do(register, facts=night.facts, candidate=served, datasets=datasets, verdict=verdict, **world)
        if verdict["decision"] != Decision.HOLD:
            do(promote, facts=night.facts, version=version.details["model"]["version"], verdict=verdict)
    do(publish_lineage, facts=night.facts, outside=night.outside)


def release(do: Steps, config: NightConfig, night: Night, policy: ModelRef) -> ModelRef:
    """The policy as it would be served, which is what is evaluated: itself, or merged and quantised."""
    if config.serving.artefact == "adapter" or policy == night.start:  # nothing was learnt: there is nothing to merge
        return policy
    return do(export, policy=policy, quantization=config.serving.quantization).model


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
