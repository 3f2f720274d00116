"""A whole night in this process, without Prefect; the results of its steps are kept by name."""

from __future__ import annotations

from collections.abc import Sequence

from clawpipe.core.config import NightConfig
from clawpipe.core.store.home import Home
from clawpipe.core.store.refs import StepResult
from clawpipe.model.policy.base import resolve_base
from clawpipe.record.nights.files import run_dir
from clawpipe.record.nights.journal import Journal, NullWatcher
from clawpipe.record.nights.record import create_record
from clawpipe.record.nights.status import NightStatus, entry
from flows.nightly import the_night
from flows.opening import dry_run_night
from tasks.step import Call, run_by


class _Kept:
    """Calls the steps, keeps their results by name, and notes them in the night's journal, which `register` reads."""

    def __init__(self, journal: Journal) -> None:
        self._journal, self.results = journal, dict[str, StepResult]()

    def run(self, call: Call) -> StepResult:
        result = self.results[call.name] = call.function(**call.arguments)
        self._journal.finish(entry(call.name, False, 0.0, call.key, result))
        return result

    def run_together(self, calls: Sequence[Call]) -> list[StepResult]:
        return [self.run(call) for call in calls]


def results_here(home: Home, config: NightConfig) -> dict[str, StepResult]:
    """Run a night of the built-in model to its verdict. CLAWPIPE_HOME must name the home."""
    resolve_base("random")
    record = create_record(home, config, None)
    kept = _Kept(Journal(NightStatus(night=record.night, run_dir=str(run_dir(home, record.night))), NullWatcher()))
    with run_by(kept):
        the_night(dry_run_night(config))
    return kept.results
