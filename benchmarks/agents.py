"""Does a policy learn by a program? The thirty lines of examples/agent/loop.py: held-out success of base and candidate.

    python benchmarks/agents.py --out benchmarks/agents.jsonl             # every night that the file has not
    python benchmarks/agents.py --out benchmarks/agents.jsonl --table     # the table of what is there

Claim: on each of three seeds the candidate's held-out success is above the base's by at least 0.2 (absolute). Both are played by
the same program, and its tasks are right where the last reply begins with a letter; the model has random weights. So it is shown
that what programs leave can be learnt from, and nothing of what an agent can become.

Each night is one line of JSON, written when it ends, with the digest of the source that it ran: a run that was stopped goes on with
the night that is missing, and a night that was killed is finished in its home. Seconds are from a shared machine and say little.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.play.environments.discovery import source_digest

ROOT = Path(__file__).parents[1]
CONFIG = "examples/agent/night.yaml"
GAIN = 0.2


def night(seed: int, homes: Path, options: Sequence[str]) -> JsonObject:
    """Run a night, or what is left of it, in a home of its own; return its line."""
    settings = (f"seed={seed}", f"night=agents-{seed}", *options)
    words = [word for setting in settings for word in ("-o", setting)]
    command = [sys.executable, "-m", "clawpipe", "run", "--config", CONFIG, *words, "--json"]
    env = os.environ | {"CLAWPIPE_HOME": str(homes / str(seed)), "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=ROOT, env=env, stdout=subprocess.PIPE, text=True)
    line: JsonObject = {"seed": seed, "options": list(options), "source": source_digest("agent")}
    if done.returncode not in (0, 1):
        return line | {"code": done.returncode, "ended": json.loads(done.stdout or "{}").get("what", "nothing said")}
    return line | figures(json.loads(done.stdout))


def figures(status: JsonObject) -> JsonObject:
    """Return what a night's line says of its status."""
    heldout = {role: round(status["heldout"][role]["success"], 3) for role in ("base", "candidate") if role in status["heldout"]}
    return {"code": 0, "verdict": status["verdict"], **heldout, "seconds": round(status["seconds"])}


def read(out: Path) -> list[JsonObject]:
    return [json.loads(line) for line in out.read_text().splitlines()] if out.exists() else []


def missing(lines: Sequence[JsonObject], seeds: Sequence[int]) -> list[int]:
    """Return the seeds that no line has."""
    known = {line["seed"] for line in lines if line["code"] == 0}
    return [seed for seed in seeds if seed not in known]


def gain(line: JsonObject) -> float:
    """Return how much more often the candidate succeeded; 0 of a night without a candidate."""
    return round(line.get("candidate", line["base"]) - line["base"], 3)


def table(lines: Sequence[JsonObject]) -> str:
    rows = ["| seed | base | candidate | gain | verdict |", "|---|---|---|---|---|"]
    for line in sorted((line for line in lines if line["code"] == 0), key=lambda line: line["seed"]):
        rows.append(f"| {line['seed']} | {line['base']} | {line.get('candidate', '-')} | {gain(line)} | {line['verdict']} |")
    return "\n".join(rows)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="file of lines, one a night")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--homes", type=Path, default=Path("/tmp/clawpipe-agents"), help="where nights that are not ended lie")
    parser.add_argument("--table", action="store_true", help="only print what is there")
    parser.add_argument("-o", "--option", action="append", default=[], help="a setting of all nights, as of `clawpipe run`")
    arguments = parser.parse_args()
    for seed in () if arguments.table else missing(read(arguments.out), arguments.seeds):
        line = night(seed, arguments.homes, arguments.option)
        with arguments.out.open("a") as file:
            file.write(f"{json.dumps(line)}\n")
    lines = read(arguments.out)
    print(table(lines))
    ended = [line for line in lines if line["code"] == 0]
    return 0 if ended and all(gain(line) >= GAIN for line in ended) else 1


if __name__ == "__main__":
    sys.exit(main())
