"""The parent's side of the generation workers, without one."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from clawpipe.core.config.night import Runtime
from clawpipe.errors import BusyError, ClawpipeError
from clawpipe.play.workers.pool import WorkerPool
from clawpipe.play.workers.request import Job, ResolveRequest

JOB = Job(request=ResolveRequest(name="random"))


def test_a_pool_that_was_closed_starts_no_worker(tmp_path: Path):
    with WorkerPool(Runtime(workers=1, device="cpu"), tmp_path / "logs") as pool:
        pass
    with pytest.raises(ClawpipeError, match="the night is over") as refused:
        pool.run(JOB)
    assert not isinstance(refused.value, BusyError)  # which would be tried again
    assert not (tmp_path / "logs").exists()


def test_half_an_answer_is_the_death_of_its_worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "mute").write_text("#!/bin/sh\nprintf '{\"ok\": [1.5, 2'\nkill -9 $$\n")
    (tmp_path / "mute").chmod(0o700)
    monkeypatch.setattr("sys.executable", str(tmp_path / "mute"))
    monkeypatch.setattr("clawpipe.core.system.processes.spawn", spawn_unguarded)
    with WorkerPool(Runtime(workers=1, device="cpu"), tmp_path / "logs") as pool, pytest.raises(BusyError, match="was killed"):
        pool.run(JOB)


def spawn_unguarded(command: list[str], **how):
    """The guard would be run by the same interpreter."""
    process = subprocess.Popen(command, **how)
    process.lifeline = None  # type: ignore[attr-defined]
    return process
