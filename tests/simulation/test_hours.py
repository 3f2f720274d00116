"""The live demo from end to end with a model of random weights, which nobody thanks: what it does, and not what it learns."""

import subprocess
from pathlib import Path

import pytest

from clawpipe.nights.record import list_nights
from clawpipe.simulation.hours import LiveDemo, Plan
from clawpipe.store.home import Home

CONFIG = """
night: live-1
rounds: 1
model: { base: random }
environment: { name: shop, train_items: 8, heldout_items: 50, benchmark_items: 0 }
rollouts: null
trajectories: [new]
scores: [new]
scorers: [rules]
curation: { credit: turn }
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


@pytest.mark.slow
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
    assert Path(report.plot).read_bytes().startswith(b"\x89PNG")
    nights = list_nights(home)
    assert LiveDemo(home, plan, told.append).run().hours == report.hours  # all is done
    assert list_nights(home) == nights
