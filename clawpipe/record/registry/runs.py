"""MLflow runs: one per night, with its name, settings, curves, verdict and model. Recording again adds nothing.

A night that is trained again with another result (new code, the same label and settings) gets a new run; the newest one
counts.
"""

from __future__ import annotations

import math
import posixpath
import re
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeVar

from mlflow import MlflowClient
from mlflow.entities import Dataset, DatasetInput, InputTag, LoggedModelOutput, Metric, Param, Run
from pydantic import BaseModel, ConfigDict, Field

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.core.store.digests import sha256_json
from clawpipe.core.store.refs import DatasetRef
from clawpipe.record.registry.client import changes
from clawpipe.record.registry.night_summary import run_title, tags_of_settings
from clawpipe.record.registry.tracking import Tracking

_RUN_KEY, _ATTEMPT = "clawpipe.run_key", "clawpipe.making"
CHECKPOINTS = "checkpoints"  # the place of adapters among a run's artifacts
STEP = "step"  # the metric that holds the number of optimizer steps in a run
_MAX_DIGEST, _MAX_PARAM, _MAX_NAME = 36, 6000, 250  # characters that MLflow stores
_MAX_PARAMS = 100  # parameters per request
T = TypeVar("T")


class NightRun(BaseModel):
    """The data of a night for MLflow."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    night: str
    params: JsonObject = Field(default_factory=dict, description="nested settings")
    metrics: dict[str, float | None] = Field(
        default_factory=dict, description="final figures; None if not computed, and then left out"
    )
    datasets: dict[str, DatasetRef] = Field(default_factory=dict, description="by role, e.g. training and evaluation")
    tags: dict[str, str] = Field(default_factory=dict)


def record_night(tracking: Tracking, run: NightRun) -> str:
    """Record a night with any verdict. Returns the run's id."""
    with changes(tracking) as client:
        return log_night(client, tracking, run)


def open_run(tracking: Tracking, night: str, attempt: int, params: Mapping[str, Any]) -> Run:
    """Find or create the run of a running night, with its settings."""
    with changes(tracking) as client:
        run = _night_run(client, tracking, night, params)
        if int(run.data.tags.get(_ATTEMPT, attempt)) != attempt:
            run = _create_run(client, tracking, night, params)
        client.set_tag(run.info.run_id, _ATTEMPT, str(attempt))
        _log_params(client, run, params)
        return client.get_run(run.info.run_id)


def logged_steps(run: Run) -> int:
    """Return the number of the last optimizer step whose metrics the run holds; 0 for none."""
    return int(run.data.metrics.get(STEP, 0))


def log_step(client: MlflowClient, run_id: str, step: int, metrics: Mapping[str, float]) -> None:
    """Log the metrics of one optimizer step in one request, with `step` among them."""
    now = int(time.time() * 1000)
    client.log_batch(run_id, metrics=[Metric(name, value, now, step) for name, value in finite({**metrics, STEP: step}).items()])


def log_probes(client: MlflowClient, run_id: str, curve: Mapping[int, Mapping[str, float]]) -> None:
    """Log metrics at optimizer steps that were logged before, but for what the run holds already."""
    now = int(time.time() * 1000)
    names = sorted({name for metrics in curve.values() for name in metrics})
    known = {(name, point.step) for name in names for point in client.get_metric_history(run_id, name)}
    points = [(name, step, value) for step, metrics in sorted(curve.items()) for name, value in finite(metrics).items()]
    fresh = [Metric(name, value, now, step) for name, step, value in points if (name, step) not in known]
    if fresh:
        client.log_batch(run_id, metrics=fresh)


def log_night(client: MlflowClient, tracking: Tracking, run: NightRun) -> str:
    """Do the work of `record_night` while the caller holds the registry's lock."""
    found = _night_run(client, tracking, run.night, run.params)
    run_id = found.info.run_id
    _log_params(client, found, run.params)
    for name, value in run.tags.items():
        client.set_tag(run_id, name, value)
    client.log_batch(run_id, metrics=_final(found, run.metrics))
    client.log_inputs(run_id, [_dataset_input(role, dataset) for role, dataset in run.datasets.items()])
    client.set_terminated(run_id, "FINISHED")
    return run_id


def log_output(client: MlflowClient, run_id: str, model_id: str) -> None:
    """Record that the run produced the model; MLflow refuses to record it twice."""
    known = client.get_run(run_id).outputs
    if model_id not in [output.model_id for output in (known.model_outputs if known else [])]:
        client.log_outputs(run_id, [LoggedModelOutput(model_id, step=0)])


def experiment_id(client: MlflowClient, tracking: Tracking) -> str:
    """Return the id of the experiment named like the registered model, creating it if needed."""
    found = client.get_experiment_by_name(tracking.model_name)
    return found.experiment_id if found else client.create_experiment(tracking.model_name, artifact_location=tracking.artifacts)


def legal_name(name: str) -> str:
    """Return a name that MLflow accepts for a metric or a parameter: `pass@1` becomes `pass_at_1`, and `a//b` `a__b`."""
    legal = re.sub(r"[^A-Za-z0-9_\-./ ]", "_", name.replace("@", "_at_"))
    is_path = posixpath.normpath(legal) == legal and not legal.startswith("/")  # MLflow refuses what might be another one's path
    return legal if is_path else legal.replace("/", "_")


def finite(values: Mapping[str, Any]) -> dict[str, float]:
    """Return the finite numbers among `values`, with names that MLflow accepts."""
    numbers = {name: float(value) for name, value in values.items() if isinstance(value, int | float)}
    return {legal_name(name): value for name, value in numbers.items() if math.isfinite(value)}


def flatten(settings: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """Flatten nested settings to dotted names."""
    flat: dict[str, str] = {}
    for name, value in settings.items():
        if isinstance(value, Mapping) and value:
            flat |= flatten(value, f"{prefix}{name}.")
        else:
            flat[f"{prefix}{name}"] = str(value)
    return flat


def _night_run(client: MlflowClient, tracking: Tracking, night: str, settings: Mapping[str, Any]) -> Run:
    experiment, key = experiment_id(client, tracking), _key(night)
    found = client.search_runs([experiment], f"tags.`{_RUN_KEY}` = '{key}'", max_results=1, order_by=["attributes.start_time DESC"])
    return found[0] if found else _create_run(client, tracking, night, settings)


def _create_run(client: MlflowClient, tracking: Tracking, night: str, settings: Mapping[str, Any]) -> Run:
    """Create a run. Its page lists tags in the order in which they were made, so those that people read come first."""
    tags = tags_of_settings(settings) | {_RUN_KEY: _key(night), "clawpipe.night": night}
    return client.create_run(experiment_id(client, tracking), run_name=run_title(night, settings), tags=tags)


def _key(night: str) -> str:
    return sha256_json(night)  # a label may hold quotes, which a filter cannot express


def _log_params(client: MlflowClient, run: Run, settings: Mapping[str, Any]) -> None:
    params = [Param(name, value[:_MAX_PARAM]) for name, value in _params(settings).items()]
    for part in _parts([param for param in params if param.key not in run.data.params], _MAX_PARAMS):  # params are immutable
        client.log_batch(run.info.run_id, params=part)


def _params(settings: Mapping[str, Any]) -> dict[str, str]:
    """Return settings by names that MLflow accepts. Names that would be alike, such as those of slices in other scripts, and long
    ones end with a digest of their own."""
    flat = flatten(settings)
    legal = {name: legal_name(name) for name in flat}
    shared = Counter(legal.values())
    plain = {name: shared[own] == 1 and len(own) <= _MAX_NAME for name, own in legal.items()}
    return {own if plain[name] else f"{own[: _MAX_NAME - 9]}-{sha256_json(name)[:8]}": flat[name] for name, own in legal.items()}


def _final(run: Run, values: Mapping[str, Any]) -> list[Metric]:
    """Return metrics stamped with the run's start, because MLflow drops a metric that repeats value, step and time."""
    return [Metric(name, value, run.info.start_time, 0) for name, value in finite(values).items()]


def _parts(entries: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    return (entries[start : start + size] for start in range(0, len(entries), size))


def _dataset_input(role: str, dataset: DatasetRef) -> DatasetInput:
    """Return a dataset for MLflow's lineage, with its role as context and the full digest as a tag."""
    entity = Dataset(
        name=dataset.name,
        digest=dataset.digest[:_MAX_DIGEST],
        source_type="clawpipe",
        source=f"clawpipe://store/{dataset.name}/{dataset.digest}",
    )
    return DatasetInput(entity, [InputTag("mlflow.data.context", role), InputTag("clawpipe.digest", dataset.digest)])
