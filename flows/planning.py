"""Plan a night: walk through its steps and look each one up, without running any."""

from __future__ import annotations

from clawpipe.core.config import NightConfig
from clawpipe.core.store.home import Home
from flows.nightly import the_night
from flows.opening import dry_run_night
from flows.runners import DryRunner, PlannedStep
from tasks.step import run_by


def plan_night(config: NightConfig) -> list[PlannedStep]:
    """Return name, key and `would` (run or cached) of every step, in order. Nothing is written, and no server is called."""
    runner = DryRunner(Home.from_env())
    with run_by(runner):
        the_night(dry_run_night(config))
    return runner.steps
