"""Does a model that is trained night after night forget what is no longer asked? Prints a line a night, and what was lost.

    python benchmarks/years.py --home DIR --arm replay --bad --json > benchmarks/years.json
    python benchmarks/years.py --home DIR --arm replay --task shop --nights 5 --json > benchmarks/years_shop.json

A model of random weights answers in characters of the kind that a question names (benchmarks/years_task.py); with `--task shop`
SmolLM2 answers the shop's questions, and the kinds are its tools. The first night asks all four kinds. Then each asks one or two,
others from night to night, so that a kind is absent for half of the time. Held-out items and the benchmark have all four alike; the
benchmark's are the same every night, and decide nothing. `--bad` makes three nights bad: in one the rewards of training are
inverted, in one there are none (it has nothing to learn, and ends without a verdict), in one they are drawn by lot.

Claims: after no night is the served model's benchmark below its best by more than its interval (Wilson, 95 %), nor has it lost a
kind: fewer of that kind's items right than after its best night, by a sign-flip test of the paired items at 5 % over all kinds. A
command that was cut goes on with the next night of the home.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from demo_seeds import conditions
from methods import append, read
from years_task import KINDS, TOOLS

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.core.store.datasets import read_dataset
from clawpipe.core.store.home import Home
from clawpipe.core.store.open import open_store
from clawpipe.core.store.refs import DatasetRef
from clawpipe.errors import DataError
from clawpipe.learn.evaluation.verdict.statistics import sign_flip

ROOT = Path(__file__).parents[1]


class Task(NamedTuple):
    config: str
    kinds: tuple[str, ...]


TASKS = {"characters": Task("benchmarks/years.yaml", tuple(KINDS)), "shop": Task("benchmarks/years_shop.yaml", TOOLS)}
ARMS = {
    "replay": ["curation.sampling.replay=0.5", "curation.sampling.replay_nights=12"],
    "none": [],
}
PERIOD = 12  # nights after which the same kinds are asked again
BAD = {9: "inverted", 15: "none", 21: "random"}  # numbers of nights
LEVEL = 0.05


def tonight(number: int, with_bad: bool, kinds: Sequence[str]) -> JsonObject:
    """Return what night `number` asks. The first, 1, asks all kinds; then a kind's weight is a cosine, and 0 for half of them."""
    turn = [math.cos(2 * math.pi * ((number - 2) / PERIOD - place / len(kinds))) for place in range(len(kinds))]
    turn = [1.0] * len(kinds) if number == 1 else turn
    mix = {kind: round(weight, 2) for kind, weight in zip(kinds, turn, strict=True) if weight > 0.05}
    return {"mix": mix, "verdicts": BAD.get(number, "right") if with_bad else "right"}


def run(home: Path, number: int, asked: JsonObject, task: Task, settings: list[str]) -> JsonObject | None:
    """Run a night to its end and return its status; None if there was nothing to learn, so that it has no verdict."""
    file = home / "tonight.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(asked))
    settings = [f"night=night-{number}", f"environment.options.tonight={file.resolve()}", *settings]
    command = [sys.executable, "-m", "clawpipe.cli.main", "run", "--config", task.config, "--json"]
    command += [part for setting in settings for part in ("-o", setting)]
    done = subprocess.run(command, cwd=ROOT, env=os.environ | {"CLAWPIPE_HOME": str(home)}, stdout=subprocess.PIPE)
    if done.returncode == DataError.exit_code and asked["verdicts"] == "none":
        return None
    if done.returncode:
        raise SystemExit(f"night {number}: exit code {done.returncode}; the same command goes on here")
    return json.loads(done.stdout)


def served(home: Path, status: JsonObject) -> JsonObject:
    """Return how the model that is served after a night does on the benchmark: figures, and right items of each kind."""
    roles = status["benchmark"]
    role = "candidate" if status["verdict"] == "PROMOTE" else "champion" if roles.get("champion") else "base"
    step = next(step for step in status["steps"] if step["name"] == f"benchmark/{role}")
    rows = read_dataset(open_store(Home(home)), DatasetRef.model_validate(step["artifacts"]["output"])).to_pylist()
    right: dict[str, dict[str, bool]] = {}
    for row in rows:
        right.setdefault(row["slice"], {})[row["item_id"]] = row["success"]
    return {"role": role, **roles[role], "right": right}


def nights(home: Path, count: int, task: Task, settings: list[str], with_bad: bool) -> Iterator[JsonObject]:
    """Run the nights that the home has not ended, and yield a line for each."""
    file = home / "years.jsonl"
    ended = read(file)
    yield from ended
    for number in range(len(ended) + 1, count + 1):
        asked = tonight(number, with_bad, task.kinds)
        status = run(home, number, asked, task, settings)
        line = {"night": number, **asked} | (ended_with(home, status) if status else without_verdict(ended))
        append(file, line)
        ended.append(line)
        yield line


def ended_with(home: Path, status: JsonObject) -> JsonObject:
    heldout = {role: figures["success"] for role, figures in status["heldout"].items() if figures}
    minutes = round(status["seconds"] / 60, 1)
    return {"verdict": status["verdict"], "heldout": heldout, "served": served(home, status), "minutes": minutes}


def without_verdict(ended: list[JsonObject]) -> JsonObject:
    """Return what there is to tell of a night without a candidate: the model in service is the one before."""
    return {"verdict": None, "heldout": {}, "served": ended[-1]["served"], "minutes": None}


def losses(lines: list[JsonObject]) -> list[JsonObject]:
    """Return the nights after which the served model was surely worse than its best before."""
    found: list[JsonObject] = []
    for place, line in enumerate(lines[1:], 1):
        before = [earlier["served"] for earlier in lines[:place]]
        best = max(one["success"] for one in before)
        if line["served"]["high"] < best:
            found.append({"night": line["night"], "lost": "all", "from": best, "to": line["served"]["success"]})
        for kind, now in line["served"]["right"].items():
            then = max((one["right"][kind] for one in before), key=lambda right: sum(right.values()))
            if sign_flip(then[item] - now[item] for item in now) < LEVEL / len(line["served"]["right"]):
                found.append({"night": line["night"], "lost": kind, "from": share(then), "to": share(now)})
    return found


def share(right: dict[str, bool]) -> float:
    return round(sum(right.values()) / len(right), 3)


def shown(line: JsonObject) -> JsonObject:
    """Return a night's line without its items."""
    one = line["served"]
    figures = {name: round(one[name], 3) for name in ("success", "low", "high")}
    return line | {"served": {"role": one["role"], **figures, **{kind: share(items) for kind, items in one["right"].items()}}}


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--home", type=Path, required=True, help="directory of the home")
    parser.add_argument("--task", choices=TASKS, default="characters")
    parser.add_argument("--nights", type=int, default=30)
    parser.add_argument("--arm", choices=ARMS, default="replay", help="whether earlier nights are learnt from again")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--bad", action="store_true", help=f"make nights bad: {BAD}")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    task, settings = TASKS[given.task], [*ARMS[given.arm], f"seed={given.seed}"]
    if given.bad and given.task != "characters":
        parser.error("--bad is of the characters: the shop's verdicts are always right")
    lines: list[JsonObject] = []
    for line in nights(given.home, given.nights, task, settings, given.bad):
        lines.append(line)
        print(json.dumps(shown(line)), file=sys.stderr, flush=True)
    lost = losses(lines)
    if given.json:
        about = conditions() | {"config": task.config, "arm": given.arm, "overrides": settings, "bad": BAD if given.bad else {}}
        print(json.dumps({"conditions": about, "lost": lost, "nights": [shown(line) for line in lines]}, indent=2))
    return 1 if lost else 0


if __name__ == "__main__":
    sys.exit(main())
