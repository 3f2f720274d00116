"""A night whose steps the workers of a Dask cluster do: two machines, each with a directory of its own."""

from __future__ import annotations

import signal

import pytest

from tests.clusters.dask_processes import scheduler, worker

pytest.importorskip("distributed")
pytestmark = [pytest.mark.slow, pytest.mark.long]
SHORT = ("rounds=1", "train.optimizer_steps=2", "rollouts.shard_rollouts=16")  # the evaluation has four shards
OWN = {"record_look", "publish_lineage", "register", "promote"}  # of each home, or of each time


def digests(status: dict) -> dict[str, str | None]:
    return {step["name"]: step["digest"] for step in status["steps"] if step["name"] not in OWN}


def test_a_machine_that_dies_in_mid_step_changes_nothing(new_clawpipe, bucket, tmp_path, monkeypatch):
    alone = new_clawpipe("without-cluster").night(*SHORT)
    monkeypatch.setenv("CLAWPIPE_SHARED", f"s3://{bucket}/agents/home")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/registry.db")
    dies = {"CLAWPIPE_KILL_AT": "rollouts.before_rename"}
    with scheduler() as address, worker(address, tmp_path / "a", **dies) as first, worker(address, tmp_path / "b"):
        clawpipe = new_clawpipe("with-cluster")
        done = clawpipe.night(*SHORT, f"runtime.task_runner={{name: dask, address: '{address}'}}")
        assert first.wait(60) == -signal.SIGKILL
    clawpipe.await_quiet()
    assert digests(done) == digests(alone)
    assert (done["verdict"], done["heldout"]) == (alone["verdict"], alone["heldout"])
    assert not any((clawpipe.home.work).glob("*"))  # rollouts and training were done elsewhere
    assert any((tmp_path / "b" / "home" / "logs").glob("worker-*.log"))
