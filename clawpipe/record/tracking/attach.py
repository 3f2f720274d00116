"""Attach a night's trackers to its journal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext

from clawpipe.core.config.night import NightConfig
from clawpipe.core.store.artifacts import Store
from clawpipe.record.nights.journal import Journal
from clawpipe.record.registry.tracking import Tracking
from clawpipe.record.tracking.mlflow_sink import MlflowSink
from clawpipe.record.tracking.sinks import Sink
from clawpipe.record.tracking.tracker import NightTracker
from clawpipe.record.tracking.wandb_sink import WandbSink


@contextmanager
def tracked_by(
    journal: Journal, config: NightConfig, tracking: Tracking, store: Store, flow_run: str | None = None
) -> Iterator[None]:
    """Let trackers follow the night during the block. A tracker is opened when there is something to log.

    Args:
        flow_run: id of Prefect's run, for traces.
    """
    night, settings = journal.status.night, config.settings()
    mlflow = MlflowSink(tracking, night, settings, lambda: journal.status.compared)
    sinks: list[Sink] = [mlflow]
    if config.tracking.wandb:
        sinks.append(WandbSink(config.tracking.wandb, night, settings, journal.run_dir))
    tracker = NightTracker(sinks, store, journal.run_dir, journal.warn, checkpoints=config.tracking.checkpoints)
    journal.watch(tracker)
    failed = True
    ids = {"clawpipe.model": config.registry.model_name, "prefect.flow_run.id": flow_run}
    with _traced(journal, ids, mlflow) if config.tracking.otel else nullcontext():
        try:
            yield
            failed = False
        finally:
            tracker.close(failed=failed)


@contextmanager
def _traced(journal: Journal, ids: Mapping[str, str | None], mlflow: MlflowSink) -> Iterator[None]:
    """Let the night leave a trace, if OpenTelemetry is installed."""
    try:
        from clawpipe.record.tracking.spans import spans_of
    except ImportError as error:
        journal.warn(f"there is no trace of this night ({error}): pip install 'clawpipe[otel]' -c constraints.txt")
        yield
        return
    with spans_of(journal, ids) as spans:
        yield
        if mlflow.run_id:
            spans.night.set_attribute("mlflow.run_id", mlflow.run_id)
