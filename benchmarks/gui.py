"""How often a small model, and an agent that clicks at random, solve each page of MiniWoB before any training. A line a page.

    python benchmarks/gui.py --json benchmarks/gui.json                        # all pages, both agents
    python benchmarks/gui.py --json benchmarks/gui.json --pages click-button login-user --agents smollm2-135m-instruct
    python benchmarks/gui.py --costs                                           # a context an episode against a browser an episode

Pages that the file has already are not run again, so it can be stopped and called again. A rate of 0 means that GRPO has nothing to
learn from on that page; docs/gui.md says what to do then.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from statistics import fmean, median

import pyarrow.parquet as pq

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.core.config.environment import EnvironmentSpec
from clawpipe.core.config.model import Model
from clawpipe.core.config.runtime import Runtime
from clawpipe.core.conversation.messages import Message, ToolCall
from clawpipe.model.policy.spec import untrained_spec
from clawpipe.play.environments.base import TaskItem
from clawpipe.play.environments.browser.client import Browser
from clawpipe.play.environments.browser.miniwob import page_names, scene_of
from clawpipe.play.environments.ending import Ending, messages_of, outcome_of
from clawpipe.play.environments.play import Play
from clawpipe.play.environments.several import World, open_world
from clawpipe.play.workers.pool import WorkerPool
from clawpipe.play.workers.request import Job, ShardRequest

CHANCE = "random-clicks"
TURNS = 4
_CHROMIUM = shutil.which("chromium") or "chromium"
_COSTED = ("click-button", "login-user", "email-inbox")


def spec_of(page: str) -> EnvironmentSpec:
    """Return the environment of one page, of which nothing is held out."""
    options = {"pages": [page], "share": 1e-9, "steps": TURNS, "screenshots": False, "seconds": 60.0}
    return EnvironmentSpec(name="gui", options=options)


def by_chance(world: World, items: Sequence[TaskItem], samples: int) -> Iterator[tuple[TaskItem, list[Message], Ending]]:
    """Yield episodes of an agent that clicks on one of the page's elements, whatever the task."""
    for item in items:
        for index in range(samples):
            drawn, messages, play = random.Random(f"{item.item_id}/{index}"), list(item.messages), Play(world, item, index)
            for _ in range(TURNS):
                numbers = re.findall(r"^(\d+) ", messages[-1].content, re.MULTILINE)
                if play.over or not numbers:
                    break
                call = ToolCall("c", "click", json.dumps({"id": drawn.choice(numbers)}))
                messages.append(Message("assistant", "", (call,)))
                answer = play.answer(messages)
                messages += answer.messages
                if answer.done:
                    break
            play.end("done")
            yield item, messages, play.ending


def by_model(
    pool: WorkerPool, model: str, spec: EnvironmentSpec, items: Sequence[TaskItem], samples: int
) -> Iterator[tuple[TaskItem, list[Message], Ending]]:
    """Yield episodes of a model, at temperature 0.8."""
    request = ShardRequest(
        policy=untrained_spec(Model(base=model)),
        environment=spec.name,
        options=spec.options,
        items=[item.as_row() for item in items],
        group_size=samples,
        temperature=0.8,
        max_new_tokens=24,
        max_turns=TURNS,
        seed=0,
    )
    known = {item.item_id: item for item in items}
    with tempfile.TemporaryDirectory() as scratch:
        pool.run(Job(request=request, output=f"{scratch}/episodes"))
        for row in pq.read_table(f"{scratch}/episodes").to_pylist():
            yield known[row["item_id"]], messages_of(row), Ending.from_row(row)


def rate(world: World, episodes: Iterator[tuple[TaskItem, list[Message], Ending]]) -> JsonObject:
    """Return the figures of one page."""
    begun, values, successes, called, errors = time.monotonic(), list[float](), 0, 0, list[str]()
    for item, messages, ending in episodes:
        if ending.error:
            errors.append(ending.error)
            continue
        outcome = outcome_of(world, item, messages, ending)
        values.append(outcome.value)
        successes += outcome.success
        called += any(call for message in messages for call in message.tool_calls if not call.malformed)
    count = len(values)
    shares = {"success": successes / count, "value": fmean(values), "called": called / count} if count else {}
    return {"episodes": count, **shares, "errors": errors[:1], "seconds": round(time.monotonic() - begun, 1)}


def run_page(pool: WorkerPool, page: str, agent: str, items: int, samples: int) -> JsonObject:
    """Play one page with one agent."""
    spec = spec_of(page)
    with open_world(spec, None) as world:
        asked = world.items("train", items, 0)
        chance = agent == CHANCE
        return rate(world, by_chance(world, asked, samples) if chance else by_model(pool, agent, spec, asked, samples))


def measure_costs() -> JsonObject:
    """Return the median seconds from nothing to a page as text: with a context an episode, and with a browser an episode."""
    kept = Browser(_CHROMIUM)
    shared = [_seconds(kept, page) for _ in range(6) for page in _COSTED][len(_COSTED) :]
    kept.close()
    own = []
    for page in (*_COSTED, *_COSTED):
        begun, browser = time.monotonic(), Browser(_CHROMIUM)
        _seconds(browser, page)
        browser.close()
        own.append(time.monotonic() - begun)
    return {"context_an_episode": round(median(shared), 3), "browser_an_episode": round(median(own), 3)}


def _seconds(browser: Browser, page: str) -> float:
    begun = time.monotonic()
    with browser.open(scene_of(page)) as tab:
        tab.begin("0")
    return time.monotonic() - begun


def about() -> JsonObject:
    """Return what the figures depend on."""
    return {
        "packages": {name: version(name) for name in ("miniwob", "playwright", "torch", "transformers")},
        "cores": os.cpu_count(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pages", nargs="*", default=list(page_names()))
    parser.add_argument("--agents", nargs="*", default=[CHANCE, "smollm2-135m-instruct"])
    parser.add_argument("--items", type=int, default=4)
    parser.add_argument("--samples", type=int, default=2)
    parser.add_argument("--costs", action="store_true")
    parser.add_argument("--json", type=Path)
    chosen = parser.parse_args()
    done: JsonObject = {"rates": {}}
    if chosen.json and chosen.json.exists():
        done = json.loads(chosen.json.read_text())
    if chosen.costs:
        done["costs"] = measure_costs()
        print(json.dumps(done["costs"]))
        _write(chosen.json, done)
        return
    with tempfile.TemporaryDirectory() as scratch, WorkerPool(Runtime(workers=1), Path(scratch)) as pool:
        for agent in chosen.agents:
            rates = done["rates"].setdefault(agent, {})
            for page in (page for page in chosen.pages if page not in rates):
                rates[page] = run_page(pool, page, agent, chosen.items, chosen.samples)
                print(json.dumps({"agent": agent, "page": page} | rates[page]), flush=True)
                _write(chosen.json, done)


def _write(file: Path | None, done: JsonObject) -> None:
    if file:
        file.write_text(json.dumps(done | about(), indent=1) + "\n")


if __name__ == "__main__":
    main()
