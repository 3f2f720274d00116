"""What does a model learn in one night? Held-out success of base and candidate, for each task and seed.

    python benchmarks/learns.py --out benchmarks/learns.jsonl                        # every night that the file has not
    python benchmarks/learns.py --out benchmarks/learns.jsonl --tasks shop --seeds 0
    python benchmarks/learns.py --out benchmarks/learns.jsonl --table                # the table of what is there

Claim: of each task and seed, the candidate's held-out success is above the base's by at least 0.2 (absolute). The tasks:

letters    the thirty lines of examples/agent/loop.py play, with a model of random weights: right is a reply that begins with a
           letter, so it shows that what programs leave can be learnt from, and nothing of what an agent can become
shop       the thirty lines of learns_loop.py play, with SmolLM2: four tools behind HTTP, one of which has what a question asks for
mini-swe-agent
           a program that others wrote does tasks in a shell, with SmolLM2; it has an environment of its own, made below the homes
           or named by --mini
stories    SmolLM2 computes sums that are told as stories, in one step
gui        SmolLM2 works on four pages of MiniWoB in Chromium

Each night is one line of JSON, written when it ends, with the digest of the source that it ran: a run that was stopped goes on with
the night that is missing, and a night that was killed is finished in its home. Seconds are from a shared machine and say little.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import product
from pathlib import Path

from demo_seeds import slices
from learns_mini import options as mini_options
from learns_mini import packages
from learns_shop import shop, write_tasks

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.play.environments.discovery import source_digest

ROOT = Path(__file__).parents[1]
CONFIGS = {
    "letters": "examples/agent/night.yaml",
    "shop": "benchmarks/learns_shop.yaml",
    "mini-swe-agent": "benchmarks/learns_mini.yaml",
    "stories": "configs/reasoning.yaml",
    "gui": "configs/gui.yaml",
}
ENVIRONMENTS = {"letters": "agent", "shop": "agent", "mini-swe-agent": "agent", "stories": "stories", "gui": "gui"}
PORT = 18711  # of the shop: a night that is gone on with finds it where it was
GAIN = 0.2


def made_settings(options: JsonObject) -> list[str]:
    """Return options of an environment as settings of a night."""
    return [f"environment.options.{name}={json.dumps(value)}" for name, value in options.items()]


@contextmanager
def playing(task: str, homes: Path, mini: Path | None) -> Iterator[list[str]]:
    """Give the settings of this machine that a task's nights have, while what it needs is there."""
    if task == "shop":
        with selling(homes) as made:
            yield made
    elif task == "mini-swe-agent":
        yield made_settings(mini_options(packages(mini or homes.resolve() / "mini-swe-agent-env")))
    else:
        yield []


@contextmanager
def selling(homes: Path) -> Iterator[list[str]]:
    """Give the settings of the shop's nights, while its tools can be asked."""
    homes.mkdir(parents=True, exist_ok=True)
    files = write_tasks(homes.resolve())
    command = ["python3", "benchmarks/learns_loop.py", files["shown"]]
    with shop(PORT) as url:
        yield made_settings({"command": command, "tasks": files["tasks"], "variables": {"SHOP_URL": url}})


def night(task: str, seed: int, homes: Path, options: Sequence[str], made: Sequence[str]) -> JsonObject:
    """Run a night, or what is left of it, in a home of its own; return its line. `made` are settings of this machine."""
    settings = (f"seed={seed}", f"night={task}-{seed}", *made, *options)
    words = [word for setting in settings for word in ("-o", setting)]
    command = [sys.executable, "-m", "clawpipe", "run", "--config", CONFIGS[task], *words, "--json"]
    env = os.environ | {"CLAWPIPE_HOME": str(homes / f"{task}-{seed}"), "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=ROOT, env=env, stdout=subprocess.PIPE, text=True)
    if done.returncode in (128 + signal.SIGINT, 128 + signal.SIGTERM) or done.returncode < 0:
        raise SystemExit("the night was stopped; the same command goes on with it")
    line: JsonObject = {"task": task, "seed": seed, "options": list(options), "source": source_digest(ENVIRONMENTS[task])}
    if done.returncode not in (0, 1):
        return line | {"code": done.returncode, "ended": json.loads(done.stdout or "{}").get("what", "nothing said")}
    return line | figures(json.loads(done.stdout))


def figures(status: JsonObject) -> JsonObject:
    """Return what a night's line says of its status."""
    heldout = {role: round(status["heldout"][role]["success"], 3) for role in ("base", "candidate") if role in status["heldout"]}
    changes: JsonObject = next((slices(step["details"]) for step in status["steps"] if step["name"] == "gate"), {})
    return {"code": 0, "verdict": status["verdict"], **heldout, **changes, "seconds": round(status["seconds"])}


def read(out: Path) -> list[JsonObject]:
    return [json.loads(line) for line in out.read_text().splitlines()] if out.exists() else []


def missing(lines: Sequence[JsonObject], tasks: Sequence[str], seeds: Sequence[int]) -> Iterator[tuple[str, int]]:
    """Yield the nights that no line has."""
    known = {(line["task"], line["seed"]) for line in lines if line["code"] == 0}
    yield from (night for night in product(tasks, seeds) if night not in known)


def gain(line: JsonObject) -> float:
    """Return how much more often the candidate succeeded; 0 of a night without a candidate."""
    return round(line.get("candidate", line["base"]) - line["base"], 3)


def table(lines: Sequence[JsonObject]) -> str:
    rows = ["| task | seed | base | candidate | gain | verdict |", "|---|---|---|---|---|---|"]
    for line in sorted((line for line in lines if line["code"] == 0), key=lambda line: (line["task"], line["seed"])):
        told = (line["task"], line["seed"], line["base"], line.get("candidate", "-"), gain(line), line["verdict"])
        rows.append(f"| {' | '.join(map(str, told))} |")
    return "\n".join(rows)


def play(wanted: argparse.Namespace) -> None:
    for task, seed in list(missing(read(wanted.out), wanted.tasks, wanted.seeds)):
        with playing(task, wanted.homes, wanted.mini) as made:
            line = night(task, seed, wanted.homes, wanted.options, made)
        with wanted.out.open("a") as file:
            file.write(f"{json.dumps(line)}\n")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="JSON Lines, one a night")
    parser.add_argument("--homes", type=Path, default=Path(".benchmark-homes"), help="where the nights' homes lie")
    parser.add_argument("--mini", type=Path, help="an environment that has mini-swe-agent; without it one is made below --homes")
    parser.add_argument("--tasks", nargs="+", choices=CONFIGS, default=[*CONFIGS])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--table", action="store_true", help="run nothing, print what is there")
    parser.add_argument("-o", dest="options", action="append", default=[], help="a setting for every night, to try the script")
    wanted = parser.parse_args()
    if not wanted.table:
        play(wanted)
    lines = read(wanted.out)
    print(table(lines))
    ended = [line for line in lines if line["code"] == 0]
    return 0 if ended and all(gain(line) >= GAIN for line in ended) else 1


if __name__ == "__main__":
    sys.exit(main())
