"""The live demo from end to end with a model of random weights, which nobody thanks: what it does, and not what it learns."""

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from clawpipe.core.services.service import running
from clawpipe.core.store.home import Home
from clawpipe.errors import BusyError
from clawpipe.record.nights.files import list_nights
from clawpipe.start.simulation.hours import LiveDemo, Plan, patience

CONFIG = """
night: live-1
rounds: 1
model: { base: random }
environment: { name: shop, train_items: 8, heldout_items: 50, benchmark_items: 0 }
rollouts: null
trajectories: [new]
scores: [new]
scorers: [rules]
curation: { credit: turn, filters: { endings: [completed, truncated] } } # random weights seldom end an answer
train: { method: combine, combine: { w_opd: 0.0 }, start_from: champion, optimizer_steps: 2, lora: { rank: 4, alpha: 8 } }
registry: { model_name: clawpipe-live }
runtime: { workers: 1, train_threads: 1 }
"""


@pytest.fixture
def plan(tmp_path: Path) -> Plan:
    config = tmp_path / "live.yaml"
    config.write_text(CONFIG)
    return Plan(config, base="random", cycles=1, talks=12, last=4, users=3)


def started_by(home: Home) -> str:
    """The command lines of running processes that name the home, or serve it."""
    listed = subprocess.run(["ps", "-eo", "args", "e"], capture_output=True, text=True, check=True).stdout
    return "\n".join(line for line in listed.splitlines() if f"CLAWPIPE_HOME={home.root}" in line)


def test_waits_are_in_proportion_to_the_machine():
    assert [patience(loading) for loading in (2.0, 20.0, 100.0)] == [120.0, 120.0, 600.0]


@pytest.mark.long
@pytest.mark.trains
@pytest.mark.usefixtures("quick_scripts")
def test_an_interrupted_demo_goes_on_where_it_was(tmp_path, plan):
    home, told = Home(tmp_path / "live"), []

    def interrupt(line: str) -> None:
        told.append(line)
        if line.startswith("live-1: a night"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        LiveDemo(home, plan, interrupt).run()
    assert started_by(home) == ""
    assert list_nights(home) == []
    before = LiveDemo(home, plan, told.append).talks
    assert len(before) >= plan.talks

    report = LiveDemo(home, plan, told.append).run()
    assert started_by(home) == ""
    first, last = report.hours
    assert (first.conversations >= plan.talks, last.conversations >= plan.last) == (True, True)
    assert (first.versions, last.versions) == (["base"], ["base"])  # random weights are promoted by nobody
    assert report.failed_requests == 0
    after = LiveDemo(home, plan, told.append).talks
    assert after[: len(before)] == before
    assert len({talk.item for talk in after}) == len(after)  # nobody asks twice

    night = first.night
    assert night is not None
    assert night.verdict in ("HOLD", "REJECT")
    assert 0 < night.judged <= night.captured
    assert 0 < night.trained <= night.judged
    found = report.headline  # nothing was promoted: the base is in service, and beats itself nowhere
    assert (found.decision, found.wins, found.losses, found.base) == ("HOLD", 0, 0, found.champion)
    assert Path(report.plot).read_bytes().startswith(b"\x89PNG")
    nights = list_nights(home)
    assert LiveDemo(home, plan, told.append).run().hours == report.hours  # all is done
    assert list_nights(home) == nights


def test_a_server_that_is_killed_ends_the_demo_at_once(tmp_path, plan):
    """It ends a night that is under way, too, instead of letting it train while nobody is answered."""
    told = []
    demo = LiveDemo(Home(tmp_path / "live"), plan, told.append)
    demo.home.logs.mkdir(parents=True)
    sleeping = [sys.executable, "-S", "-c", "import time; time.sleep(600)"]
    with running("the server", sleeping, tmp_path / "log", {}) as server, demo._watched(server):
        threading.Timer(0.1, lambda: os.kill(server.process.pid, signal.SIGKILL)).start()
        with pytest.raises(BusyError, match="the server was killed"):
            demo._command("ingest", "--format", f"{_sleeper(tmp_path)}:read", str(tmp_path / "log"))
    assert len(told) == 1


def _sleeper(directory: Path) -> Path:
    """A reader of logs that never ends."""
    file = directory / "sleeper.py"
    file.write_text("import time\n\n\ndef read(line):\n    time.sleep(600)\n")
    return file
