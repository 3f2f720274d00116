"""Sweeps of real nights: killed, gone on with, pruned, on a work pool."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from prefect.client.orchestration import get_client
from prefect.client.schemas.actions import WorkPoolCreate
from prefect.settings import temporary_settings

from clawpipe.core.config import load_config
from clawpipe.record.nights.status import Figures, NightStatus
from clawpipe.start.sweeping.study import Study

pytestmark = pytest.mark.slow

SPACE = "train.learning_rate: {low: 5.0e-4, high: 5.0e-3, log: true}\ntrain.optimizer_steps: {choices: [4, 8]}\n"
POOL = "sweepers"
ONE_ROUND = ("-o", "rounds=1", "-o", "runtime.workers=1")


@pytest.fixture
def sweeper(new_clawpipe) -> Iterator[Callable]:
    """`clawpipe sweep --json` of the tiny night on a home of its own."""
    clawpipe = new_clawpipe("sweep")
    space = clawpipe.root / "space.yaml"
    space.write_text(SPACE)

    def sweep(trials: int, *words: str, kill_at: str = ""):
        return clawpipe("sweep", *clawpipe.options(), "-s", str(space), "--trials", str(trials), *words, kill_at=kill_at)

    sweep.clawpipe = clawpipe
    yield sweep
    clawpipe.await_quiet()


def directory(clawpipe) -> Path:
    [found] = (clawpipe.home.root / "sweeps").iterdir()
    return found


def ran(done) -> list[str]:
    """Steps that were not cached, by the lines on stderr."""
    return [line.split()[0] for line in done.stderr.splitlines() if line.split()[1] == "ran"]


@pytest.mark.long
def test_a_killed_sweep_goes_on_where_it_was(sweeper, release):
    clawpipe = sweeper.clawpipe
    killed = sweeper(2, kill_at="step.before_record/train#3")  # the second trial's first round
    assert killed.code == -signal.SIGKILL, killed.stderr
    release(clawpipe.api)
    drawn = Study(directory(clawpipe)).night(1).train

    done = sweeper(2)
    assert done.code == 0, done.stdout + done.stderr
    assert done.json["counts"] == {"complete": 2}
    assert not {"make_items", "evaluate/base", "round-1/score"} & set(ran(done))
    assert [trial["params"]["train.learning_rate"] for trial in done.json["trials"]][1] == drawn.learning_rate
    best = done.json["best"]
    assert best["value"] == max(trial["value"] for trial in done.json["trials"])
    assert load_config(Path(best["config"])).train.learning_rate == best["params"]["train.learning_rate"]
    assert all(set(trial["rounds"]) == {"1", "2"} for trial in done.json["trials"])

    assert clawpipe.registered() == {}
    assert not (clawpipe.home.root / "promotions.jsonl").exists()
    assert clawpipe("status", "--json").json["error"] == "NotFoundError"  # trials are no nights of the home
    again = sweeper(2)
    assert (again.code, again.stderr, again.json) == (0, "", done.json)

    unlike_any(clawpipe)
    pruned = sweeper(7)
    assert pruned.code == 0, pruned.stdout + pruned.stderr
    assert pruned.json["counts"] == {"complete": 6, "pruned": 1}
    assert "round-1/train" in ran(pruned)
    assert not {"round-2/train", "evaluate/candidate", "gate"} & set(ran(pruned))
    assert clawpipe.leftovers() == []


def unlike_any(clawpipe) -> None:
    """Four more trials that end so well that the next one cannot keep up."""
    study = Study(directory(clawpipe))
    for _ in range(4):
        number = study.take(0, 1, 6)
        assert number is not None
        study.prune(number, 1, 1.0)
        perfect = Figures(success=1.0, low=0.9, high=1.0, n=60)
        study.complete(number, NightStatus(night="n", heldout={"base": None, "champion": None, "candidate": perfect}))


@pytest.mark.long
def test_trials_on_a_work_pool(sweeper):
    clawpipe = sweeper.clawpipe
    unknown = sweeper(2, "--parallel", "2", "--pool", "nowhere")
    assert (unknown.code, unknown.json["error"]) == (2, "NotFoundError")
    with worker(clawpipe):
        done = sweeper(2, "--parallel", "2", "--pool", POOL, *ONE_ROUND)
    assert done.code == 0, done.stdout + done.stderr
    assert done.json["counts"] == {"complete": 2}, done.json
    homes = {Path(trial["run_dir"]).parent.parent.name for trial in done.json["trials"]}
    assert homes == {"home-0", "home-1"}
    assert clawpipe.registered() == {}


@pytest.fixture
def release() -> Callable[[str], None]:
    """Free the accelerator of a night that was killed: of a server that lives on, the dead holder's lease ends after a minute."""
    from flows.bootstrap import prepare_limit

    def free(api: str) -> None:
        with temporary_settings({"PREFECT_API_URL": api, "PREFECT_SERVER_EPHEMERAL_ENABLED": False}):
            prepare_limit(fresh_server=True)

    return free


class worker:  # noqa: N801  (reads as a verb's object)
    """A worker of a pool of its own, online for the length of the block."""

    def __init__(self, clawpipe) -> None:
        self._python = clawpipe.guard.with_name("python")  # the pool's processes are forks, too
        self._api, self._env = clawpipe.api, os.environ | {"PREFECT_API_URL": clawpipe.api}

    def __enter__(self) -> None:
        command = [str(self._python), "-m", "prefect", "worker", "start", "--pool", POOL, "--type", "process"]
        settings = temporary_settings({"PREFECT_API_URL": self._api, "PREFECT_SERVER_EPHEMERAL_ENABLED": False})
        with settings, get_client(sync_client=True) as client:
            client.create_work_pool(WorkPoolCreate(name=POOL, type="process"))
            self._process = subprocess.Popen(command, env=self._env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            while not client.read_workers_for_work_pool(POOL):
                assert self._process.poll() is None

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        try:
            self._process.wait(60)
        except subprocess.TimeoutExpired:  # it waits for its runs, which a loaded machine takes long to end
            self._process.kill()
            self._process.wait()
