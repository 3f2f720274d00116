"""Children below a guard, which ends them however it is ended itself."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from clawpipe.core.system import processes

TELLS_BOTH_IDS = """
import os, signal, subprocess, sys
child = subprocess.Popen([sys.executable, "-S", "-c", "import signal; signal.pause()"])
print(os.getpid(), child.pid, flush=True)
signal.pause()
"""
TELLS_ITS_ID = "import os, signal; print(os.getpid(), flush=True); signal.pause()"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_child_does_not_survive_a_guard_that_is_told_to_end(number: signal.Signals):
    guard = processes.spawn([sys.executable, "-S", "-c", TELLS_ITS_ID], stdout=subprocess.PIPE)
    assert guard.stdout is not None
    child = int(guard.stdout.readline())
    assert child != guard.pid
    os.kill(guard.pid, number)
    assert processes.finish(guard, 20) == -signal.SIGTERM  # what the child died of
    assert not Path(f"/proc/{child}").exists()


@pytest.mark.parametrize(
    ("script", "code"),
    [("", 0), ("raise SystemExit(75)", 75), ("import os; os.kill(os.getpid(), 9)", -9)],
    ids=["0", "75", "killed"],
)
def test_the_exit_code_is_the_childs(script: str, code: int):
    assert processes.finish(processes.spawn([sys.executable, "-S", "-c", script]), 20) == code


@pytest.mark.parametrize("kill", [os.kill, os.killpg], ids=["alone", "with its group"])
def test_nothing_survives_a_guard_that_is_killed(kill: Callable[[int, int], None]):
    guard = processes.spawn([sys.executable, "-S", "-c", TELLS_BOTH_IDS], stdout=subprocess.PIPE)
    assert guard.stdout is not None
    ends = [os.pidfd_open(int(number)) for number in guard.stdout.readline().split()]
    kill(guard.pid, signal.SIGKILL)
    for end in ends:  # a descriptor of a process is ready when the process has ended
        assert select.select([end], [], [], 20)[0] == [end]
        os.close(end)
    assert processes.stop(guard) == -signal.SIGKILL


def test_a_guard_leaves_nobody_behind_when_its_child_ends():
    guard = processes.spawn([sys.executable, "-S", "-c", "print('done')"], stdout=subprocess.PIPE)
    assert guard.stdout is not None
    assert guard.stdout.read() == b"done\n"  # until nobody holds the other end
    assert processes.stop(guard) == 0


def test_a_quick_exit_leaves_nothing_undone():
    """Threads end, exit functions run in their order, and what was printed arrives, as at any exit; only destructors do not run."""
    script = """
import atexit, threading, sys, time
from clawpipe.core.system.processes import quick_exit
class Held:
    def __del__(self): print("taken apart")
held = Held()
atexit.register(print, "second"); atexit.register(print, "first")
threading.Thread(target=lambda: (time.sleep(0.2), print("thread"))).start()
print("main", end=" ")
quick_exit(75)
"""
    root = Path(__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=root, check=False)
    assert (done.returncode, done.stdout.split(), done.stderr) == (75, ["main", "thread", "first", "second"], "")


def test_a_quick_exit_outlives_its_reader():
    script = "from clawpipe.core.system.processes import quick_exit; print('x' * 10, end=''); quick_exit(3)"
    read, write = os.pipe()
    os.close(read)
    root = Path(__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", script], stdout=write, stderr=subprocess.PIPE, cwd=root, check=False)
    os.close(write)
    assert (done.returncode, done.stderr) == (3, b"")


ENTRANCES = {
    "a worker": ["-m", "clawpipe.play.workers", "cpu", "1"],
    "a training": ["-c", "from clawpipe.learn.children.answer import prepare; prepare(1, 'cpu'); import torch"],
    "a command": ["-c", "from clawpipe.cli import main; main._outcome(['--help']); import torch"],
}


@pytest.mark.parametrize(
    ("given", "spins"), [({}, "10000"), ({"OMP_WAIT_POLICY": "passive"}, "0"), ({"GOMP_SPINCOUNT": "77"}, "77")]
)
@pytest.mark.parametrize("entrance", ENTRANCES)
def test_threads_that_wait_long_sleep_unless_told_how(entrance: str, given: dict[str, str], spins: str):
    """OpenMP itself says by what it was set when torch loads it."""
    kept = {name: value for name, value in os.environ.items() if name not in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")}
    env = kept | {"OMP_DISPLAY_ENV": "verbose"} | given
    command = [sys.executable, *ENTRANCES[entrance]]
    told = subprocess.run(command, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True).stderr
    assert f"GOMP_SPINCOUNT = '{spins}'" in told
