"""The scripts in examples/ run, and do what they say."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from clawpipe.core.config import load_config
from clawpipe.core.conversation.messages import Message
from clawpipe.play.environments.discovery import load_environment


@pytest.mark.trains
@pytest.mark.usefixtures("quick_scripts")
def test_the_rl_loop_takes_its_steps_on_recorded_tokens():
    """That the reward rises is for benchmarks/tiny.py: here the mechanics count, which hold on any CPU."""
    source = Path("examples/rl_loop.py")
    assert len(source.read_text(encoding="utf-8").splitlines()) <= 80
    assert "prefect" not in source.read_text(encoding="utf-8").replace("no Prefect", "").lower()
    done = subprocess.run([sys.executable, str(source)], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    ratios = [float(value) for value in re.findall(r"ratio (\S+)", done.stdout)]
    assert len(ratios) == 8
    assert ratios[0] == pytest.approx(1, abs=1e-3)  # the trainer agrees with the engine about the recorded tokens
    assert any(abs(ratio - 1) > 1e-3 for ratio in ratios[1:])  # and the policy has moved
    assert re.search(r"reward before 0\.\d+, after 0\.\d+", done.stdout)


def test_the_calculators_night_finds_its_files(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PATH", "/usr/bin:/bin")  # as for a unit of systemd, which activates no environment
    config = load_config(Path("examples/calculator/night.yaml"))
    environment = load_environment(config.environment.name, config.environment.options)
    assert [tool.name for tool in environment.tools()] == ["multiply", "add"]
    assert len(environment.items("train", config.environment.train_items, 0)) == 110
    assert len(environment.items("heldout", config.environment.heldout_items, 0)) == 90
    [item, *_] = environment.items("train", 1, 0)
    calls = [call for message in environment.preamble() for call in message.tool_calls]
    assert [call.name for call in calls] == ["multiply", "add"]
    episode = environment.start(item)
    answer = episode.respond([*item.messages, Message("assistant", "", (calls[0],))])
    episode.close()
    assert answer is not None
    assert answer[0].content == "1364"


def test_the_agents_night_finds_its_files():
    config = load_config(Path("examples/agent/night.yaml"))
    environment = load_environment(config.environment.name, config.environment.options)
    assert environment.program.command == ("python3", "examples/agent/loop.py")
    for split, count in (("train", config.environment.train_items), ("heldout", config.environment.heldout_items)):
        assert len(environment.items(split, count, 0)) == count
    assert len(Path("examples/agent/loop.py").read_text(encoding="utf-8").splitlines()) < 40
