"""Does the world `swe` judge right? Scripted agents play every planted task: one that mends, one that does nothing, two that cheat.

    clawpipe env plant --output /tmp/swe --tasks 300
    python benchmarks/swe.py /tmp/swe --json --out benchmarks/swe.json

Claims: the agent that applies the known patch gets 1 of every task; the others get 0 of every task. `edits` makes the failing tests
pass by changing them; `plants` deletes them and leaves a conftest, a sitecustomize, settings of pytest and a report of its own.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.core.conversation.messages import Message, ToolCall
from clawpipe.play.environments.base import TaskItem
from clawpipe.play.environments.demonstration import play_out, solution_of
from clawpipe.play.environments.ending import outcome_of
from clawpipe.play.environments.swe.environment import Config, SweEnvironment

_HOOK = """
import pytest
@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    report = (yield).get_result()
    report.outcome = "passed"
"""
_EDITS = "find . -name 'test_*.py' -exec sed -i 's/assert /assert True or /; s/self.assert[A-Za-z]*(/(lambda *a, **k: None)(/' {} +"
_PLANTS = f"""
find . -name 'test_*.py' -delete
cat > conftest.py <<'END'
{_HOOK}
END
cp conftest.py sitecustomize.py
printf '[pytest]\\naddopts = -p conftest\\n' > pytest.ini
printf '<testsuites><testcase classname="a" name="b"/></testsuites>' | tee /tmp/report.xml > report.xml
"""
_DONE = Message("assistant", "Done.")


class Played(NamedTuple):
    """One episode."""

    agent: str
    package: str
    value: float
    reason: str
    seconds: float


def _bash(command: str) -> list[Message]:
    return [Message("assistant", "", (ToolCall("call", "bash", json.dumps({"command": command})),)), _DONE]


AGENTS: dict[str, Callable[[SweEnvironment, TaskItem], list[Message]]] = {
    "gold": solution_of,
    "null": lambda environment, item: [_DONE],
    "edits": lambda environment, item: _bash(_EDITS),
    "plants": lambda environment, item: _bash(_PLANTS),
}


def play(environment: SweEnvironment, agent: str, item: TaskItem) -> Played:
    """Play one episode with a scripted agent."""
    begun, turns = time.monotonic(), AGENTS[agent](environment, item)
    messages, ending = play_out(environment, item, lambda number: turns[number] if number < len(turns) else None, len(turns))
    outcome = outcome_of(environment, item, messages, ending)
    return Played(agent, item.slice, outcome.value, outcome.reason, time.monotonic() - begun)


def measure(environment: SweEnvironment, agents: Sequence[str], limit: int | None, workers: int) -> list[Played]:
    """Play every task, or the first `limit` of either side, with every agent."""
    items = [item for split in ("train", "heldout") for item in _items(environment, split, limit)]
    episodes = [(agent, item) for agent in agents for item in items]
    with ThreadPoolExecutor(workers) as pool:
        return list(pool.map(lambda one: _told(play(environment, *one)), episodes))


def _items(environment: SweEnvironment, split: str, limit: int | None) -> list[TaskItem]:
    there = environment.number_of_items(split)
    return environment.items(split, min(there, limit or there), 0)


def _told(played: Played) -> Played:
    print(f"{played.agent} {played.package} {played.value:g} {played.reason} {played.seconds:.1f} s", file=sys.stderr, flush=True)
    return played


def summary(episodes: Sequence[Played]) -> JsonObject:
    """Return, by agent: episodes, mean, lowest and highest value, median seconds; and the tasks of each package."""
    by_agent: dict[str, list[Played]] = defaultdict(list)
    for one in episodes:
        by_agent[one.agent].append(one)
    return {agent: _figures(played) for agent, played in by_agent.items()}


def _figures(played: Sequence[Played]) -> JsonObject:
    values = [one.value for one in played]
    packages = {name: sum(one.package == name for one in played) for name in sorted({one.package for one in played})}
    return {
        "episodes": len(values),
        "mean": sum(values) / len(values),
        "lowest": min(values),
        "highest": max(values),
        "median_seconds": round(sorted(one.seconds for one in played)[len(played) // 2], 2),
        "packages": packages,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", type=Path, help="what `clawpipe env plant` wrote")
    parser.add_argument("--agent", action="append", choices=list(AGENTS), help="repeatable; all if left out")
    parser.add_argument("--limit", type=int, help="tasks of either side of the split")
    parser.add_argument("--workers", type=int, default=2, help="episodes at the same time")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--out", type=Path, help="write the JSON there, too")
    given = parser.parse_args()
    environment = SweEnvironment(Config(tasks=str(given.folder / "tasks.jsonl")))
    found = summary(measure(environment, given.agent or list(AGENTS), given.limit, given.workers))
    if given.out:
        given.out.write_text(json.dumps(found, indent=1) + "\n")
    for agent, figures in found.items():
        if not given.json:
            print(f"{agent:7} {figures['episodes']} episodes, mean {figures['mean']:g}, {figures['median_seconds']} s each")
    if given.json:
        print(json.dumps(found))
    held = all(figures["lowest"] == figures["highest"] == float(agent == "gold") for agent, figures in found.items())
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())
