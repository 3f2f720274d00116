"""What does sft learn from sessions that are too long for its budget, by what is done with them?

    python benchmarks/compression.py --out benchmarks/compression.json

Simulated sessions: a clerk looks pieces up item by item, each with a tool call whose result holds noise, and in the end is asked
for a report. Three quarters of the sessions are longer than the budget; the short ones have one item and no report. Arms, on the
same sessions, with the same number of optimizer steps:

    drop        long sessions are filtered, as without `curation.compress`
    beginning   the first messages that fit, up to the last whole turn
    end         the system message and the last messages that fit, from a whole turn on
    compress    `curation.compress` by rule
    whole       no budget: what the budget costs

The effect is the log-prob of the replies of held-out long sessions, read whole, in nats per token; beside it that of the report
alone and of the calls alone. The base is a model of two layers of random weights over bytes: the figures order the arms, and say
nothing of a real model's. Claim: on each seed compress is above drop and above beginning, on all replies. It claims nothing against
end.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from unittest.mock import patch

import numpy as np
import pyarrow as pa
from demo_seeds import conditions
from tiny_side import train_here

from clawpipe.core.basics.json_types import JsonObject, Row
from clawpipe.core.config.curation import Compress, Curation
from clawpipe.core.config.environment import EnvironmentConfig
from clawpipe.core.config.runtime import Runtime
from clawpipe.core.config.training import Lora, Train
from clawpipe.core.contracts.schema import schema_of
from clawpipe.core.conversation.messages import Message
from clawpipe.core.store.datasets import publish_dataset, read_dataset
from clawpipe.core.store.home import Home
from clawpipe.core.store.open import open_store
from clawpipe.core.store.refs import DatasetRef, ModelRef
from clawpipe.data.curation.runner import curate
from clawpipe.data.ingest.intake.options import Options
from clawpipe.data.ingest.intake.run import ingest
from clawpipe.learn.training import produce
from clawpipe.model.policy.base import resolve_base
from clawpipe.model.policy.version import base_ref
from clawpipe.play.recorded.compare import Asked, score_rows
from clawpipe.play.recorded.compress import compress_rows
from clawpipe.play.recorded.shorten import turns_of
from clawpipe.play.recorded.text_rows import render_text
from clawpipe.play.workers.pool import WorkerPool

BUDGET = 480
SESSIONS, HELDOUT = 60, 16
STEPS, EPOCHS = 20, 4
ARMS = ("drop", "beginning", "end", "compress", "whole")
_WORDS = ("mug", "pen", "cup", "bag", "hat", "map", "key", "box", "fan", "jar", "rug", "net")
_PLAIN = EnvironmentConfig(name="letters")
_WHOLE = Curation(imitate="any")
_BUDGETED = Curation(imitate="any", max_tokens=BUDGET)
_TRAIN = Train(
    method="sft", learning_rate=5e-3, optimizer_steps=STEPS, epochs=EPOCHS, lora=Lora(rank=16, alpha=32), pack_tokens=8192
)


def session(draw: random.Random, number: int, long: bool) -> JsonObject:
    """Return a session as a line of a log."""
    names = draw.sample(_WORDS, draw.randint(5, 6) if long else 1)
    counts = {name: draw.randint(1, 99) for name in names}
    messages: list[JsonObject] = [
        {"role": "system", "content": "Count stock."},
        {"role": "user", "content": f"Count {', '.join(names)}."},
    ]
    for place, name in enumerate(names):
        function = {"name": "stock", "arguments": json.dumps({"item": name})}
        messages.append({"role": "assistant", "content": "", "tool_calls": [{"id": f"c{place}", "function": function}]})
        noise = "".join(draw.choice("abcdefghij ") for _ in range(40))
        messages.append({"role": "tool", "tool_call_id": f"c{place}", "content": f"{noise} pieces={counts[name]}"})
    messages.append({"role": "assistant", "content": "Counted."})
    if long:
        report = "; ".join(f"{name} {count}" for name, count in counts.items())
        messages += [
            {"role": "user", "content": "Report."},
            {"role": "assistant", "content": f"REPORT {report}. Total {sum(counts.values())}."},
        ]
    return {"session_id": f"s{number}", "messages": messages}


def sessions(seed: int, name: str, count: int, long: Callable[[int], bool]) -> list[JsonObject]:
    draw = random.Random(f"{seed}/{name}")
    return [session(draw, number, long(number)) for number in range(count)]


@dataclass(frozen=True)
class Here:
    """A home with the base."""

    home: Home
    base: ModelRef
    pool: WorkerPool

    def stored(self, name: str, lines: Sequence[JsonObject]) -> DatasetRef:
        file = self.home.root / f"{name}.jsonl"
        file.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
        return ingest(self.home, [str(file)], Options()).datasets["trajectories"]

    def rendered(self, trajectories: DatasetRef) -> list[Row]:
        done = render_text(open_store(self.home), trajectories, self.base, _PLAIN)
        return read_dataset(open_store(self.home), done.dataset).to_pylist()


def row(here: Here, seed: int, arm: str, given: DatasetRef, heldout: list[Row]) -> JsonObject:
    """Return what an arm has learnt on a seed."""
    began, store = time.perf_counter(), open_store(here.home)
    if arm in ("beginning", "end"):
        given = truncated(here, given, arm)
    if arm == "compress":
        given = compress_rows(store, given, here.base, _PLAIN, Compress(), BUDGET).dataset
    text = render_text(store, given, here.base, _PLAIN).dataset
    nothing = [publish_dataset(store, name, [pa.Table.from_pylist([], schema_of(name))]) for name in ("scores", "task_items")]
    chosen = curate(store, [text], nothing[:1], nothing[1], _WHOLE if arm == "whole" else _BUDGETED, "sft")
    with patch.object(produce, "run_training", train_here):
        trained = produce.train_policy(
            store,
            here.home.work,
            chosen.dataset,
            here.base,
            None,
            _TRAIN,
            temperature=1.0,
            seed=seed,
            runtime=Runtime(device="cpu", train_threads=1),
            on_progress=lambda metrics: None,
        )
    figures = {"seed": seed, "arm": arm, "rows": chosen.rows_out, "tokens": chosen.details["tokens"]}
    return figures | measured(here, trained.model, heldout) | {"seconds": round(time.perf_counter() - began, 1)}


def truncated(here: Here, trajectories: DatasetRef, side: str) -> DatasetRef:
    """Return the dataset with whole turns taken from one side of each long conversation until it fits."""
    store = open_store(here.home)
    rows = read_dataset(store, trajectories).to_pylist()
    while long := [place for place, made in enumerate(_lengths(here, rows)) if made > BUDGET]:
        for place in long:
            rows[place]["messages"] = _without_a_turn(rows[place]["messages"], side)
            rows[place]["kinds"] = None
    return publish_dataset(store, "trajectories", [pa.Table.from_pylist(rows, schema_of("trajectories"))])


def _lengths(here: Here, rows: list[Row]) -> list[int]:
    ref = publish_dataset(open_store(here.home), "trajectories", [pa.Table.from_pylist(rows, schema_of("trajectories"))])
    return [len(rendered["rendered_ids"]) for rendered in here.rendered(ref)]


def _without_a_turn(rows: list[Row], side: str) -> list[Row]:
    turns = turns_of([Message.from_dict(one) for one in rows])
    gone = turns[0] if side == "end" else turns[-1]
    return [one for place, one in enumerate(rows) if place not in gone]


def measured(here: Here, policy: ModelRef, heldout: list[Row]) -> JsonObject:
    """Return the mean log-prob of the replies of held-out sessions: of all, of the report, of the calls."""
    store = open_store(here.home)
    asked = [Asked(made["rendered_ids"], np.asarray(made["rendered_mask"], bool), 1.0) for made in heldout]
    scored = score_rows(store, here.pool, policy, asked)
    return {name: round(fmean(_mean(one, made, name) for one, made in zip(scored, heldout, strict=True)), 4) for name in _PARTS}


_PARTS: dict[str, Callable[[int, int], bool]] = {
    "replies": lambda turn, turns: True,
    "report": lambda turn, turns: turn == turns - 1,
    "calls": lambda turn, turns: turn < turns - 2,
}


def _mean(scored: np.ndarray, made: Row, part: str) -> float:
    runs = list(_runs(made["rendered_mask"]))
    return float(np.mean([scored[place] for turn, run in enumerate(runs) if _PARTS[part](turn, len(runs)) for place in run]))


def _runs(mask: Sequence[bool]) -> Iterator[range]:
    start = None
    for place, on in enumerate([*mask, False]):
        if on and start is None:
            start = place
        if not on and start is not None:
            yield range(start, place)
            start = None


def holds(rows: list[JsonObject]) -> bool:
    """Whether the claim is true of the rows."""
    by = {(one["seed"], one["arm"]): one["replies"] for one in rows}
    seeds = {one["seed"] for one in rows}
    return all(by[seed, "compress"] > max(by[seed, "drop"], by[seed, "beginning"]) for seed in seeds)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("seeds", type=int, nargs="*", default=[0, 1, 2])
    parser.add_argument("--out", type=Path, help="JSON file for the results")
    arguments = parser.parse_args()
    settings = {"budget": BUDGET, "sessions": SESSIONS, "heldout": HELDOUT, "steps": STEPS * EPOCHS, "base": "random"}
    results: JsonObject = {"conditions": conditions() | {"config": None} | settings, "base": [], "rows": []}
    with tempfile.TemporaryDirectory() as place:
        home = Home(Path(place) / "home")
        home.root.mkdir(mode=0o700)
        base = base_ref("random", resolve_base("random").digest, "pythonic", "float32")
        with WorkerPool(Runtime(device="cpu", workers=1), home.logs) as pool:
            here = Here(home, base, pool)
            for seed in arguments.seeds:
                given = here.stored(f"{seed}-train", sessions(seed, "train", SESSIONS, lambda number: number % 4 > 0))
                heldout = here.rendered(here.stored(f"{seed}-heldout", sessions(seed, "heldout", HELDOUT, lambda _: True)))
                results["base"].append({"seed": seed} | measured(here, base, heldout))
                for arm in ARMS:
                    results["rows"].append(row(here, seed, arm, given, heldout))
                    print(json.dumps(results["rows"][-1]), flush=True)
                    if arguments.out:
                        arguments.out.write_text(json.dumps(results, indent=2) + "\n")
    return 0 if holds(results["rows"]) else 1


if __name__ == "__main__":
    sys.exit(main())
