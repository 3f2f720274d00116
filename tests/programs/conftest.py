"""Episodes of real programs, played by a real worker with the built-in model of random weights."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from clawpipe.core.basics.json_types import Row
from clawpipe.core.config.engine import EngineSpec
from clawpipe.model.policy.base import resolve_base
from clawpipe.model.policy.spec import PolicySpec
from clawpipe.play.environments.agent import AgentEnvironment
from clawpipe.play.workers.request import ShardRequest
from clawpipe.play.workers.worker import Worker

SCRIPTED = f"{Path(__file__).parent / 'scripted.py'}:Scripted"
SHELL_LOOP = ["python3", str(Path(__file__).parent / "shell_loop.py")]
LOOP = str(Path(__file__).parent / "loop.py")
Play = Callable[..., list[Row]]


@pytest.fixture(scope="session")
def policy() -> PolicySpec:
    base = resolve_base("random").path
    return PolicySpec(base=str(base), adapter=None, dtype="float32", tool_call_format="pythonic", policy_version="f" * 16)


@pytest.fixture(scope="session")
def worker() -> Iterator[Worker]:
    torch.set_num_threads(1)
    worker = Worker("cpu")
    yield worker
    worker.close()


@pytest.fixture
def tasks(tmp_path: Path) -> Path:
    """Twelve tasks; the answer of each is a letter."""
    file = tmp_path / "tasks.jsonl"
    lines = [{"prompt": f"Say a word of {number} letters.", "answer": "a", "check": "contains"} for number in range(12)]
    file.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    return file


@pytest.fixture
def play(worker: Worker, policy: PolicySpec, tasks: Path) -> Play:
    """play(command, items=1, group=1, engine=..., **limits and options): the rows of a shard of episodes."""

    def play(
        command: list[str],
        items: int = 1,
        group: int = 1,
        max_turns: int = 8,
        max_new_tokens: int = 6,
        engine: EngineSpec | None = None,
        call_timeout: float = 300.0,
        **options: Any,
    ) -> list[Row]:
        own = {} if "world" in options else {"tasks": str(tasks), "sandbox": "unsafe_local"}
        given = {"command": command} | own | options
        drawn = AgentEnvironment(**given).items("train", items, 0)
        request = ShardRequest(
            policy=policy,
            engine=engine or EngineSpec(),
            environment="agent",
            options=given,
            call_timeout=call_timeout,
            items=[item.as_row() for item in drawn],
            group_size=group,
            temperature=1.0,
            max_new_tokens=max_new_tokens,
            max_turns=max_turns,
            seed=7,
        )
        return worker._rows(request)  # pyright: ignore[reportPrivateUsage]  # what is written into a shard

    return play


@pytest.fixture
def loop() -> list[str]:
    """The command of the smallest agent."""
    return [sys.executable, LOOP]


def scripted(*replies: str) -> EngineSpec:
    """An engine that says these, one a turn."""
    return EngineSpec(name=SCRIPTED, options={"replies": list(replies)})
