"""What does one long reply of a tool cost the other rollouts of its batch? CPU seconds, beside one buffer for all rows.

    python benchmarks/long_reply.py [--rows 16] [--reply 500] [--base smollm2-135m-instruct] >> benchmarks/long_reply.jsonl

Rows sample a few tokens, read a short reply, sample again, and so on; one of them reads a long reply each time. Both ways run in
turn in this process. `padded_tokens` are what their buffers hold in the end; `equal` the turns that have the same tokens in both,
which are all but for a draw that falls within rounding of the next token.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections.abc import Sequence
from unittest.mock import patch

import torch

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.model.engines import row_cache
from clawpipe.model.engines.base import Sampling
from clawpipe.model.engines.embedded import EmbeddedEngine, RowConversations
from clawpipe.model.policy.base import resolve_base

TURNS, SAMPLING = 3, Sampling(temperature=0.8, max_new_tokens=6, stop_ids=frozenset())
WAYS = {"groups": row_cache._WASTED, "one_buffer": 1 << 60}  # pyright: ignore[reportPrivateUsage]


def drawn(draw: random.Random, count: int) -> list[int]:
    return [draw.randrange(5, 200) for _ in range(count)]


def play(engine: EmbeddedEngine, rows: int, reply: int) -> tuple[list[list[int]], int]:
    """Return the tokens of all turns, and how many tokens the buffers have room for in the end."""
    draw, turns = random.Random(0), list[list[int]]()
    before = drawn(draw, 150)
    talks = engine.begin([before + drawn(draw, 10 + row % 7) for row in range(rows)])
    for turn in range(TURNS):
        told = talks.sample({row: 100 * turn + row for row in range(rows)}, SAMPLING)
        turns += [told[row].ids for row in range(rows)]
        talks.extend({row: drawn(draw, reply if row == 3 else 12) for row in range(rows)})
    assert isinstance(talks, RowConversations)
    return turns, talks._cache.capacity  # pyright: ignore[reportPrivateUsage]


def measured(engine: EmbeddedEngine, rows: int, reply: int) -> JsonObject:
    """Return the CPU seconds of each way, and the ratio."""
    found: JsonObject = {}
    tokens: Sequence[list[list[int]]] = []
    for way, wasted in WAYS.items():
        with patch.object(row_cache, "_WASTED", wasted):
            began = time.process_time()
            told, capacity = play(engine, rows, reply)
            found[way] = {"cpu_seconds": round(time.process_time() - began, 2), "padded_tokens": capacity}
        tokens = [*tokens, told]
    ratio = found["one_buffer"]["cpu_seconds"] / found["groups"]["cpu_seconds"]
    equal = sum(map(list.__eq__, *tokens))
    return {"rows": rows, "reply": reply, **found, "ratio": round(ratio, 2), "turns": len(tokens[0]), "equal": equal}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=16)
    parser.add_argument("--reply", type=int, default=500, help="tokens of the long reply")
    parser.add_argument("--base", default="smollm2-135m-instruct")
    wanted = parser.parse_args()
    torch.set_num_threads(1)
    engine = EmbeddedEngine(resolve_base(wanted.base).path, None, device="cpu")
    play(engine, 2, 8)  # the first pass is slower
    print(json.dumps({"base": wanted.base, **measured(engine, wanted.rows, wanted.reply)}))


if __name__ == "__main__":
    main()
