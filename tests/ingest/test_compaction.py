"""Many small imports become one dataset; what named the old ones goes on as before."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from clawpipe.core.store.datasets import dataset_ref, publish_dataset, read_dataset
from clawpipe.core.store.files import exclusive
from clawpipe.data.ingest.compaction import compact_imports
from clawpipe.data.ingest.intake.options import Options
from clawpipe.data.ingest.intake.state import load, log_file, logs, save
from clawpipe.errors import BusyError
from clawpipe.record.removal.collect import collect


@pytest.fixture
def nightly(desk, make):
    """nightly(n): a log as n runs of ingest leave it, each with one conversation. Returns the digests."""

    def run(count: int) -> list[str]:
        desk.write("chats.jsonl", make.lines(*(make.chat(f"Question {number}?", "Yes.") for number in range(count))))
        done = desk.ingest()
        table = read_dataset(desk.store, done.datasets["trajectories"])
        refs = [publish_dataset(desk.store, "trajectories", [table.slice(row, 1)]) for row in range(count)]
        digests = [ref.digest for ref in refs]
        log = log_file(desk.home, Options().name)
        save(log, load(log).model_copy(update={"datasets": {"trajectories": digests}}))
        desk.store.remove(done.datasets["trajectories"])
        return digests

    return run


def digests(desk) -> list[str]:
    [log] = logs(desk.home).values()
    return log.datasets["trajectories"]


def test_small_imports_are_joined_with_rows_in_order(desk, nightly):
    old = nightly(9)
    rows = desk.stored()
    [joined] = compact_imports(desk.home)
    assert joined.digests == old
    assert digests(desk) == [joined.into]
    assert desk.stored() == rows
    assert compact_imports(desk.home) == []


def test_few_are_left_alone(desk, nightly):
    old = nightly(7)
    assert compact_imports(desk.home) == []
    assert digests(desk) == old


def test_a_dry_run_only_looks(desk, nightly):
    old = nightly(8)
    [joined] = compact_imports(desk.home, dry_run=True)
    assert (joined.into, joined.rows, digests(desk)) == (None, 8, old)


def test_what_is_stored_is_still_known(desk, make, nightly):
    nightly(8)
    compact_imports(desk.home)
    desk.write("copy.jsonl", make.lines(make.chat("Question 3?", "Yes.")))
    assert desk.ingest().counts["repeated"] == 1


def test_an_old_digest_keeps_its_rows_until_nobody_names_it(desk, nightly):
    [first, *_] = nightly(8)
    compact_imports(desk.home)
    assert dataset_ref(desk.store, "trajectories", first).rows == 1
    collect(desk.home, settling=0.0)
    assert [name for name, _ in desk.store.names()] == ["trajectories"]


@pytest.mark.parametrize("point", ["store.before_rename/trajectories", "write_atomic.before_rename"])
@pytest.mark.usefixtures("quick_scripts")
def test_after_a_kill_no_row_is_lost_and_a_rerun_joins_them(desk, nightly, point):
    old, rows = nightly(8), desk.stored()
    command = [sys.executable, "-m", "clawpipe.cli.main", "gc", "--compact"]
    environment = os.environ | {"CLAWPIPE_HOME": str(desk.home.root), "CLAWPIPE_KILL_AT": point}
    assert subprocess.run(command, env=environment, capture_output=True).returncode == -signal.SIGKILL
    assert (digests(desk), desk.stored()) == (old, rows)
    [joined] = compact_imports(desk.home)
    assert (digests(desk), desk.stored()) == ([joined.into], rows)


def test_nothing_is_joined_while_data_are_read_in(desk, nightly):
    nightly(1)
    with exclusive(desk.home.locks / "ingest.lock", "a test"), pytest.raises(BusyError):
        compact_imports(desk.home)
