"""The MLflow tracker: the night's run in the experiment named like the registered model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from mlflow import MlflowClient

from clawpipe.learn.evaluation.verdict.verdict import Verdict
from clawpipe.record.registry.client import answered, connect
from clawpipe.record.registry.night_summary import description, final_metrics
from clawpipe.record.registry.runs import CHECKPOINTS, NightRun, log_probes, log_step, logged_steps, open_run, record_night
from clawpipe.record.registry.tracking import Tracking

_DESCRIPTION = "mlflow.note.content"  # the tag that a run's page shows as its description, in Markdown


class MlflowSink:
    """One run per night. MLflow is asked what the run holds, so nothing is logged twice however the night was killed.

    Args:
        tracking: location of MLflow.
        night: the night's id.
        settings: the night's nested config; logged as parameters.
        compared: returns the sentence that says what the night learns from and compares, which is known once it has begun.
    """

    name = "MLflow"
    away = "start its server, or unset MLFLOW_TRACKING_URI to use the home's own database"

    def __init__(self, tracking: Tracking, night: str, settings: Mapping[str, Any], compared: Callable[[], str]) -> None:
        self._tracking, self._night, self._settings, self._compared = tracking, night, dict(settings), compared
        self.run_id: str | None = None  # of MLflow's run, once it is open

    def open(self, attempt: int) -> int:
        run = open_run(self._tracking, self._night, attempt, self._settings)
        self.run_id = self._run_id = run.info.run_id
        if run.info.status == "FAILED":
            with answered(self._tracking):
                self._client().update_run(self._run_id, status="RUNNING")
        return logged_steps(run)

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        with answered(self._tracking):
            log_step(self._client(), self._run_id, step, metrics)

    def probed(self, curve: Mapping[int, Mapping[str, float]]) -> None:
        with answered(self._tracking):
            log_probes(self._client(), self._run_id, curve)

    def keep(self, part: str, directory: Path) -> None:
        client, place = self._client(), f"{CHECKPOINTS}/{part}"
        with answered(self._tracking):
            there = {(Path(file.path).name, file.file_size) for file in client.list_artifacts(self._run_id, place)}
            if there != {(file.name, file.stat().st_size) for file in directory.iterdir()}:
                client.log_artifacts(self._run_id, str(directory), place)

    def conclude(self, verdict: Verdict) -> None:
        tags = {"verdict": verdict.decision.value, _DESCRIPTION: description(self._compared(), verdict)}
        record_night(self._tracking, NightRun(night=self._night, metrics=final_metrics(verdict), tags=tags))

    def close(self, *, failed: bool) -> None:
        with answered(self._tracking):
            self._client().set_terminated(self._run_id, "FAILED" if failed else "FINISHED")

    def _client(self) -> MlflowClient:
        """Return a client that fails at once if the server is gone: MLflow's own would retry for minutes."""
        if self._tracking.database is None:
            return connect(self._tracking)
        return MlflowClient(tracking_uri=self._tracking.uri, registry_uri=self._tracking.uri)
