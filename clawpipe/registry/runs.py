"""One MLflow run a night, named like it. Recording it again adds nothing."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from mlflow import MlflowClient
from mlflow.entities import Dataset, DatasetInput, InputTag, LoggedModelOutput, Metric, Param, Run
from pydantic import BaseModel, ConfigDict, Field

from clawpipe.registry.client import changes
from clawpipe.registry.tracking import Tracking
from clawpipe.store.digests import sha256_json
from clawpipe.store.refs import DatasetRef

_RUN_KEY = "clawpipe.run_key"
_MAX_DIGEST, _MAX_PARAM = 36, 6000  # characters that MLflow keeps
_MAX_PARAMS, _MAX_METRICS = 100, 1000  # entries that it takes at once
T = TypeVar("T")


class NightRun(BaseModel):
    """What MLflow is told about a night."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    night: str
    params: dict[str, Any] = Field(default_factory=dict, description="settings, nested as they are")
    metrics: dict[str, float | None] = Field(
        default_factory=dict, description="final figures; what could not be computed is left out"
    )
    datasets: dict[str, DatasetRef] = Field(default_factory=dict, description="by role, e.g. training and evaluation")


def record_night(tracking: Tracking, run: NightRun) -> str:
    """Record a night, whatever its verdict. Returns the run's id."""
    with changes(tracking) as client:
        return log_night(client, tracking, run)


def record_steps(tracking: Tracking, night: str, prefix: str, rows: Iterable[Mapping[str, Any]]) -> None:
    """Record the metrics of training step by step, e.g. with prefix "round-1/"; each row holds `step`."""
    with changes(tracking) as client:
        run = _night_run(client, tracking, night)
        metrics = [metric for row in rows for metric in _metrics(run, _prefixed(prefix, row), int(row["step"]))]
        for part in _parts(metrics, _MAX_METRICS):
            client.log_batch(run.info.run_id, metrics=part)


def log_night(client: MlflowClient, tracking: Tracking, run: NightRun) -> str:
    """`record_night` for whoever holds the registry's lock already."""
    found = _night_run(client, tracking, run.night)
    run_id = found.info.run_id
    params = [Param(legal_name(name), value[:_MAX_PARAM]) for name, value in flatten(run.params).items()]
    for part in _parts([param for param in params if param.key not in found.data.params], _MAX_PARAMS):  # they cannot be changed
        client.log_batch(run_id, params=part)
    client.log_batch(run_id, metrics=_metrics(found, run.metrics, 0))
    client.log_inputs(run_id, [_dataset_input(role, dataset) for role, dataset in run.datasets.items()])
    client.set_terminated(run_id, "FINISHED")
    return run_id


def log_output(client: MlflowClient, run_id: str, model_id: str) -> None:
    """Note that the run made the model; MLflow refuses to be told twice."""
    known = client.get_run(run_id).outputs
    if model_id not in [output.model_id for output in (known.model_outputs if known else [])]:
        client.log_outputs(run_id, [LoggedModelOutput(model_id, step=0)])


def experiment_id(client: MlflowClient, tracking: Tracking) -> str:
    """The experiment that is named like the registered model."""
    found = client.get_experiment_by_name(tracking.model_name)
    return found.experiment_id if found else client.create_experiment(tracking.model_name, artifact_location=tracking.artifacts)


def legal_name(name: str) -> str:
    """A name that MLflow takes for a metric or a parameter: `pass@1` becomes `pass_at_1`."""
    return re.sub(r"[^A-Za-z0-9_\-./ ]", "_", name.replace("@", "_at_"))


def flatten(settings: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """Nested settings with dotted names."""
    flat: dict[str, str] = {}
    for name, value in settings.items():
        if isinstance(value, Mapping) and value:
            flat |= flatten(value, f"{prefix}{name}.")
        else:
            flat[f"{prefix}{name}"] = str(value)
    return flat


def _night_run(client: MlflowClient, tracking: Tracking, night: str) -> Run:
    experiment, key = experiment_id(client, tracking), sha256_json(night)  # a label may hold quotes, which no filter can
    found = client.search_runs([experiment], f"tags.`{_RUN_KEY}` = '{key}'", max_results=1)
    return found[0] if found else client.create_run(experiment, run_name=night, tags={_RUN_KEY: key, "clawpipe.night": night})


def _metrics(run: Run, values: Mapping[str, Any], step: int) -> list[Metric]:
    """Finite numbers only. Stamped with the run's start, because MLflow drops a metric that is equal in value, step and time."""
    numbers = {name: float(value) for name, value in values.items() if isinstance(value, int | float) and math.isfinite(value)}
    return [Metric(legal_name(name), value, run.info.start_time + step, step) for name, value in numbers.items()]


def _prefixed(prefix: str, row: Mapping[str, Any]) -> dict[str, Any]:
    return {f"{prefix}{name}": value for name, value in row.items() if name != "step"}


def _parts(entries: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    return (entries[start : start + size] for start in range(0, len(entries), size))


def _dataset_input(role: str, dataset: DatasetRef) -> DatasetInput:
    """A dataset as MLflow's lineage knows it; the role is its context, and the full digest a tag."""
    entity = Dataset(
        name=dataset.name,
        digest=dataset.digest[:_MAX_DIGEST],
        source_type="clawpipe",
        source=f"clawpipe://store/{dataset.name}/{dataset.digest}",
    )
    return DatasetInput(entity, [InputTag("mlflow.data.context", role), InputTag("clawpipe.digest", dataset.digest)])
