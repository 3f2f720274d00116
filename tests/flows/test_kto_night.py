"""A night of kto, from rollouts to its verdict, with its steps called as plain functions: no Prefect server, two processes."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from clawpipe.config import load_config
from clawpipe.nights.journal import Journal, NullWatcher
from clawpipe.nights.record import NightStatus, create_record, entry, run_dir
from clawpipe.policy.base import resolve_base
from clawpipe.services.stack import project_directory
from clawpipe.store.datasets import read_dataset
from clawpipe.store.home import Home
from clawpipe.store.open import open_store
from clawpipe.store.refs import StepResult
from flows.nightly import the_night
from flows.opening import dry_run_night
from tasks.step import Call, run_by

pytestmark = [pytest.mark.slow, pytest.mark.trains, pytest.mark.usefixtures("quick_children")]
SMALL = (
    *("train.method=kto", "rounds=1", "rollouts.items=6", "rollouts.group_size=2", "rollouts.chunks=1", "train.optimizer_steps=2"),
    *("train.pack_tokens=64", "environment.heldout_items=8", "gate.min_items=1", "environment.options={threshold: 0.3}"),
)


class Kept:
    """Calls the steps, keeps their results by name, and notes them in the night's journal, which `register` reads."""

    def __init__(self, journal: Journal) -> None:
        self._journal, self.results = journal, dict[str, StepResult]()

    def run(self, call: Call) -> StepResult:
        result = self.results[call.name] = call.function(**call.arguments)
        self._journal.finish(entry(call.name, False, 0.0, call.key, result))
        return result

    def run_together(self, calls: Sequence[Call]) -> list[StepResult]:
        return [self.run(call) for call in calls]


def test_a_kto_night_learns_from_labels_and_reaches_a_verdict(tmp_path, monkeypatch):
    monkeypatch.setenv("CLAWPIPE_HOME", str(tmp_path))
    resolve_base("random")
    home = Home.from_env()
    config = load_config(project_directory() / "configs" / "tiny.yaml", SMALL)
    record = create_record(home, config, None)
    kept = Kept(Journal(NightStatus(night=record.night, run_dir=str(run_dir(home, record.night))), NullWatcher()))
    with run_by(kept):
        the_night(dry_run_night(config))

    curated, trained = kept.results["round-1/curate"], kept.results["round-1/train"]
    rows = read_dataset(open_store(home), curated.dataset).to_pylist()
    assert {advantage for row in rows for advantage in row["advantages"]} <= {-1.0, 0.0, 1.0}
    assert kept.results["round-1/annotate"].rows_out == len(rows) == trained.rows_out
    first, last = trained.details["updates"]
    assert first["kl"] == pytest.approx(0, abs=1e-3)  # the policy is its reference
    assert first["loss"] == pytest.approx(0.5, abs=1e-3)  # every row is worth half of the most, whatever its label
    assert last["step"] == 2
    assert trained.details["moved"] > 0
    assert kept.results["gate"].details["decision"] in ("PROMOTE", "HOLD", "REJECT")
