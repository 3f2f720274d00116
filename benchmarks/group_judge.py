"""Does GRPO learn from a judge's ranks alone? Runs nights whose reward is `group`, and prints a line for each.

    python benchmarks/group_judge.py --seeds 0 1 2 --json > benchmarks/group_judge.json

No model that runs here can rank, so the judges are simulated: a server that speaks the chat protocol answers by a rule. Arms:

    verifier        no judge: the environment's verifier is the reward (the ceiling)
    ranks           the verifier's ranks, and with each pair flipped with probability 0.1 and 0.25 (`flipped-10`, `flipped-25`)
    head            a reward head (ridge regression over counts of characters), fitted on replies to none of the night's items
    single          `prm` in place of `group`, with the verifier's sign: three votes on each turn that something followed
    random          ranks drawn by lot: must not learn
    length          the longer one is better: a sign must say so

In all arms with a judge the verifier's weight is 0. Calls and tokens are what the nights' own count says; the server counts a token
for four bytes. The task is the tiny night's, which a model of two layers learns in a minute. An existing `--out` keeps its nights.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
from demo_seeds import conditions

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.core.conversation.messages import Message
from clawpipe.core.store.home import Home
from clawpipe.play.environments.letters import LettersEnvironment
from clawpipe.play.judging.spending import spent_in
from clawpipe.play.judging.votes import votes_file

ROOT = Path(__file__).parents[1]
ARMS = ("verifier", "ranks", "flipped-10", "flipped-25", "head", "single", "random", "length")
_FLIPPED = {"ranks": 0.0, "flipped-10": 0.1, "flipped-25": 0.25}
_EXAMPLES, _CHARACTERS = 300, 256
Height = Callable[[str], float]


def value_of(replies: str) -> float:
    """Return the verifier's value of replies."""
    environment = LettersEnvironment()
    (item,) = environment.items("train", 1, 0)
    return environment.verify(item, [Message("assistant", replies)]).value


@cache
def head() -> Height:
    """Return a reward head: ridge regression of the verifier's value on the counts of characters of random replies."""
    drawn = random.Random(7)
    replies = ["".join(chr(drawn.randrange(32, 127)) for _ in range(drawn.randrange(1, 5))) for _ in range(_EXAMPLES)]
    counts = np.stack([_counts(reply) for reply in replies])
    values = np.array([value_of(reply) for reply in replies])
    weights = np.linalg.solve(counts.T @ counts + np.eye(_CHARACTERS), counts.T @ values)
    return lambda reply: float(_counts(reply) @ weights)


def _counts(reply: str) -> np.ndarray:
    return np.bincount([min(ord(character), _CHARACTERS - 1) for character in reply] or [0], minlength=_CHARACTERS).astype(float)


def ranking(arm: str, replies: dict[str, str]) -> list[list[str]]:
    """Return the names from the best on; those that are equal share a place."""
    lot = random.Random(hashlib.sha256(json.dumps([arm, replies]).encode()).hexdigest())
    heights: dict[str, Height] = {"head": head(), "length": len, "random": lambda _: lot.random()}
    if arm in heights:
        return _levels({name: heights[arm](reply) for name, reply in replies.items()})
    wins = dict.fromkeys(replies, 0.0)
    names = list(replies)
    for place, one in enumerate(names):
        for other in names[place + 1 :]:
            difference = np.sign(value_of(replies[one]) - value_of(replies[other]))
            difference *= -1 if lot.random() < _FLIPPED[arm] else 1
            wins[one] += difference
            wins[other] -= difference
    return _levels(wins)


def _levels(heights: dict[str, float]) -> list[list[str]]:
    levels = sorted({round(height, 9) for height in heights.values()}, reverse=True)
    return [[name for name, height in heights.items() if round(height, 9) == level] for level in levels]


def answered(arm: str, system: str, document: JsonObject) -> JsonObject:
    """Return the answer of the judge of an arm."""
    code = json.loads(system[system.rindex('{"code"') :].replace("1 or 0 or -1", "0"))["code"]
    if "reply" in document:
        value = value_of(document["reply"]["text"])
        return {"code": code, "verdict": 1 if value >= 0.5 else -1, "hints": []}
    common = _said(document["conversation"])
    replies = {one["name"]: common + _said(one["messages"]) for one in document["rollouts"]}
    return {"code": code, "ranking": ranking(arm, replies)}


def _said(messages: Sequence[JsonObject]) -> str:
    return "".join(message["text"] for message in messages if message.get("role") == "assistant")


@contextmanager
def judge() -> Iterator[str]:
    """Serve the simulated judges, each a model of its arm's name; return the URL."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            raw = self.rfile.read(int(self.headers["content-length"]))
            asked = json.loads(raw)
            system, document = (message["content"] for message in asked["messages"])
            text = json.dumps(answered(asked["model"], system, json.loads(document)))
            usage = {"prompt_tokens": len(raw) // 4, "completion_tokens": len(text) // 4}
            choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
            data = json.dumps({"choices": [choice], "usage": usage}).encode()
            self.send_response(200)
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1"
    finally:
        server.shutdown()
        server.server_close()


def night(arm: str, seed: int, url: str, options: Sequence[str]) -> JsonObject:
    """Return the line of a night in a fresh home."""
    name = "prm" if arm == "single" else "group"
    scorers = f"[{{name: verifier, weight: 0}}, {{name: {name}, weight: 1, options: {{url: '{url}', model: {arm}}}}}]"
    given = [f"seed={seed}", *([] if arm == "verifier" else [f"scorers={scorers}"]), *options]
    command = [sys.executable, "-m", "clawpipe.cli.main", "run", "--config", "configs/tiny.yaml", "--json"]
    command += [part for option in given for part in ("-o", option)]
    with tempfile.TemporaryDirectory() as home:
        done = subprocess.run(command, cwd=ROOT, env=os.environ | {"CLAWPIPE_HOME": home}, stdout=subprocess.PIPE)
        if done.returncode:
            raise SystemExit(f"{arm}, seed {seed}: exit code {done.returncode}")
        status = json.loads(done.stdout)
        spent = spent_in(votes_file(Home(Path(home))), status["night"])
    base, candidate = (status["heldout"][role]["success"] for role in ("base", "candidate"))
    return {
        "arm": arm,
        "simulated": arm != "verifier",
        "seed": seed,
        "base": round(base, 3),
        "candidate": round(candidate, 3),
        "gain": round(candidate - base, 3),
        "verdict": status["verdict"],
        "calls": sum(one.requests for one in spent),
        "tokens": sum(one.tokens for one in spent),
        "signs": [text for text in status["warnings"] if {"group", "prm"} & set(text.split())],
        "seconds": round(status["seconds"]),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--arms", nargs="+", choices=ARMS, default=list(ARMS))
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--option", "-o", action="append", default=[], help="setting of all nights, such as rounds=1")
    parser.add_argument("--out", type=Path, help="file of earlier nights, which are not run again; it gets a line for each night")
    parser.add_argument("--json", action="store_true", help="print all nights as one object")
    given = parser.parse_args()
    rows = [json.loads(line) for line in given.out.read_text().splitlines()] if given.out and given.out.exists() else []
    known = {(row["arm"], row["seed"]) for row in rows}
    with judge() as url:
        for seed in given.seeds:
            for arm in given.arms:
                if (arm, seed) not in known:
                    rows.append(night(arm, seed, url, given.option))
                    print(json.dumps(rows[-1]), file=sys.stderr, flush=True)
                    if given.out:
                        given.out.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    if given.json:
        print(json.dumps({"conditions": conditions() | {"config": "configs/tiny.yaml"}, "nights": rows}, indent=1))


if __name__ == "__main__":
    main()
