"""The whole loop on one page: from task items, or from stored trajectories, to a verdict.

`the_night` is the only description of a night: `clawpipe run` and deployments run it through `nightly`, below,
and `clawpipe plan` walks through it without running a step.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from prefect import flow, get_run_logger
from prefect.runtime import deployment, flow_run
from prefect.task_runners import ThreadPoolTaskRunner

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.core.config import load_config
from clawpipe.core.config.night import NightConfig
from clawpipe.core.store.home import Home
from clawpipe.core.store.permissions import keep_private
from clawpipe.core.store.refs import ModelRef, OptimizerRef, StepResult
from clawpipe.data.curation.advice import nothing_to_learn
from clawpipe.errors import ClawpipeError
from clawpipe.learn.evaluation.verdict.verdict import Decision
from clawpipe.record.nights.files import night_id
from clawpipe.record.runs.recording import recorded
from flows.choice import RoundsSoFar, until
from flows.datasets import NothingNewError
from flows.figures import exported
from flows.heldout import compare, draw, show_trend, without_heldout
from flows.ingest import ingest_waiting
from flows.judged import judge, log
from flows.labels import labelled
from flows.learning import choose_training_data, learn
from flows.night import Night
from flows.notices import told
from flows.opening import close_night, open_night
from flows.queue import due, go_on, in_queue
from flows.round import Round, generate_rollouts
from flows.runners import PrefectRunner
from flows.users import each, overrides_of_users
from tasks.evaluation import gate
from tasks.export import export, measure_fidelity
from tasks.items import record_look, require_slices
from tasks.model import check_model
from tasks.registry import promote, publish_lineage, register
from tasks.step import part, run_by

CHUNKS_AT_ONCE = 64  # all chunks of a round: chunks that are generated together wait for one another


RUNNER: Any = ThreadPoolTaskRunner(max_workers=CHUNKS_AT_ONCE)  # Any: Prefect declares its runners invariant


def _night_of_run() -> str:
    """Return the Prefect run's name: the night's id, or the config's path where the settings cannot be read."""
    parameters = flow_run.parameters
    try:
        given = load_config(Path(parameters["config"]), parameters.get("overrides") or [])
        return night_id(labelled(Home.from_env(), given, *due()))
    except ClawpipeError:
        return str(parameters["config"])


@flow(name="nightly-retrain", flow_run_name=_night_of_run, task_runner=RUNNER, persist_result=False)
def nightly(config: str = "configs/nightly.yaml", overrides: list[str] | None = None) -> JsonObject:
    """Run one night: roll out, curate, train, evaluate, decide, register, promote. In a deployment it ingests what waits first.

    Args:
        config: YAML file of the night's settings, relative to the project.
        overrides: settings on top of it, e.g. ["train.method=sft", "seed=3"].
    """
    keep_private()  # a worker that clawpipe has not started may run this
    return in_queue(lambda: _nights(Path(config), overrides or []))


def _nights(config: Path, overrides: list[str]) -> JsonObject:
    given = _settings(config, overrides)
    return _nights_of_users(config, overrides) if given.registry.per else _a_night(given)


def _settings(config: Path, overrides: list[str]) -> NightConfig:
    """Read the settings. A run that cannot read them ends here, and is recorded like any other."""
    try:
        return load_config(config, overrides)
    except ClawpipeError:
        with recorded(Home.from_env(), _asked()):
            raise


def _nights_of_users(config: Path, overrides: list[str]) -> JsonObject:
    """Run the night of each user who said something new, one after the other."""
    home, statuses = Home.from_env(), list[JsonObject]()
    if deployment.id:
        ingest_waiting(home)
    each(
        overrides_of_users(home, config, overrides),
        lambda own: statuses.append(_a_night(load_config(config, own))),
        lambda error: get_run_logger().error(str(error)),
    )
    return {"nights": statuses}


def _a_night(given: NightConfig) -> JsonObject:
    home = Home.from_env()
    settings = labelled(home, given, *due())
    with told(settings), exported(settings), recorded(home, _facts(settings)) as recorder:
        if deployment.id:
            ingest_waiting(home)
        try:
            with open_night(settings) as night, run_by(PrefectRunner(night.journal, night.home)):
                recorder.follow(night.journal)
                the_night(night)
                status = close_night(night)
        except NothingNewError as error:
            recorder.end("completed", error.what)
            raise
    go_on(given, settings)
    return status.model_dump(mode="json")


def _facts(settings: NightConfig) -> dict[str, Any]:
    """Return what is known of a run of this flow as its night starts."""
    return _asked() | {"night": night_id(settings), "model": settings.registry.model_name}


def _asked() -> dict[str, Any]:
    """Return what is known of a run of this flow before its settings are read."""
    parameters = flow_run.parameters
    return {
        "config": str(parameters.get("config", "")),
        "overrides": [str(word) for word in parameters.get("overrides") or []],
        "started_by": "deployment" if deployment.id else "hand",
        "flow_run": str(flow_run.id),
    }


def the_night(night: Night) -> None:
    """Run the rounds of learning, one evaluation and one decision.

    Raises:
        DataError: no round left a row to train on. An untrained base is no candidate, so nothing is evaluated.
    """
    config, runtime = night.config, night.config.runtime
    check_model(policy=night.start, train=night.training_numerics, engine=night.rollouts.engine, runtime=runtime)
    heldout = draw(night)
    if config.curation.named_slices:
        require_slices(items=heldout.items, named=config.curation.named_slices)
    drawn, learning = heldout.drawn, without_heldout(night, heldout)

    policy, training_sets = night.start, {"items": heldout.items}
    optimizer: OptimizerRef | None = None  # one for the night, whose state goes from round to round
    versions = [policy.policy_version]  # the newest first
    filtered: list[StepResult] = []  # results of the steps that filter rows
    tried = list(learning.past)
    rounds = RoundsSoFar()
    for number in range(config.rounds):
        with part(f"round-{number + 1}"):
            this = Round(learning, heldout.items, drawn.extra("all"), policy, number, versions, filtered, tried, optimizer)
            rollouts = generate_rollouts(this)
            judged = judge(this, rollouts)
            log(this, rollouts, judged)
            rounds.measured(this, judged)
            data = choose_training_data(this, judged)
            if data:
                training_sets[f"round-{number + 1}"] = data.rows
                policy, optimizer = learn(this, judged, data)
                rounds.trained[f"round-{number + 1}"] = policy
                versions = list(dict.fromkeys([policy.policy_version, *versions]))
    if policy == night.start:
        raise nothing_to_learn(filtered, config.train.method, config.curation.min_samples)

    choice = rounds.candidate()
    if choice:
        policy, training_sets = choice.model, until(choice, training_sets)
    served = policy_to_serve(night, policy)
    contenders = night.contenders(served)
    record_look(ledger=night.ledger, night=night.night, draw=night.draw, items=drawn.dataset)
    results = compare(night, heldout, contenders)
    answers = results["candidate"].extra("trajectories")
    fidelity = None
    if served != policy:
        fidelity = measure_fidelity(trained=policy, served=served, base=night.base, heldout=answers, runtime=runtime)
    verdict = gate(
        policies=contenders,
        drawn=drawn,
        results=results,
        scored=[*filtered, *rounds.compared] if config.judged else filtered,
        config=config.gate_rules,
        confidence=config.evaluation.confidence,
        fidelity=fidelity,
        max_divergence=config.serving.max_divergence,
        measure=config.measure,
        earlier=list(night.earlier),
        seen=sorted(night.seen) if config.gate.adds_up else [],
    )

    if verdict.details["decision"] != Decision.REJECT and served.stored:
        registered = register(
            summary=night.summary,
            candidate=served,
            environment=config.drawn,
            datasets={**training_sets, "heldout": answers},
            verdict=verdict,
            runtime=runtime,
        )
        if verdict.details["decision"] != Decision.HOLD:
            promote(summary=night.summary, version=registered.details["model"]["version"], verdict=verdict)
    if heldout.benchmark and heldout.benchmark.rows:
        show_trend(night, heldout.benchmark, contenders)
    publish_lineage(summary=night.summary, outside=night.external_artifacts)


def policy_to_serve(night: Night, policy: ModelRef) -> ModelRef:
    """Return the policy as it would be served, which is the one evaluated: the adapter itself, or merged and quantized weights."""
    serving = night.config.serving
    if serving.artifact == "adapter":
        return policy
    return export(policy=policy, quantization=serving.quantization, runtime=night.config.runtime).model
