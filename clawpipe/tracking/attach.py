"""Attach a night's trackers to its journal."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from clawpipe.config.night import NightConfig
from clawpipe.nights.journal import Journal
from clawpipe.registry.tracking import Tracking
from clawpipe.store.artifacts import Store
from clawpipe.tracking.mlflow_sink import MlflowSink
from clawpipe.tracking.sinks import Sink
from clawpipe.tracking.tracker import NightTracker
from clawpipe.tracking.wandb_sink import WandbSink


@contextmanager
def tracked_by(journal: Journal, config: NightConfig, tracking: Tracking, store: Store) -> Iterator[None]:
    """Let trackers follow the night during the block. A tracker is opened when there is something to log."""
    night, settings = journal.status.night, config.settings()
    sinks: list[Sink] = [MlflowSink(tracking, night, settings)]
    if config.tracking.wandb:
        sinks.append(WandbSink(config.tracking.wandb, night, settings, journal.run_dir))
    tracker = NightTracker(sinks, store, journal.run_dir, journal.warn, checkpoints=config.tracking.checkpoints)
    journal.watch(tracker)
    failed = True
    try:
        yield
        failed = False
    finally:
        tracker.close(failed=failed)
