"""How much faster are many requests at once? `clawpipe serve` with continuous batching beside the same server one by one.

    python benchmarks/serving.py --json > benchmarks/serving.json

Two servers on loopback, each in a process of its own with SmolLM2-135M in float32. One batches; the other runs one request at a
time with the engine that nights sample with, as `serve` did before it batched. In each round 1, 4, 16 and 64 clients ask at once,
first the one, then the other: 64 tokens of prompt, no two alike, and 64 new tokens each. `batching_speedup_N` is the median ratio
of their tokens per second; the one by one is asked by at most 4 clients, since more only wait longer. The two must say the same:
before anything is timed, their greedy tokens are compared, and their log-probs (`largest_difference`, nats).

    python benchmarks/serving.py --swaps 1000 --json > benchmarks/serving_swaps.json

So many versions of a tiny model are put in service one after the other, under load: `failed` counts requests without an answer,
`mixed` those whose log-probs are not those of the version that they name.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx
from serving_swaps import swaps

from clawpipe.core.basics.json_types import JsonObject

SIDE = Path(__file__).with_name("serving_side.py")
CLIENTS = (1, 4, 16, 64)
ONE_BY_ONE_CLIENTS = 4
TOKENS = 64  # of prompt and of answer


@contextmanager
def server(kind: str, threads: int) -> Iterator[httpx.Client]:
    """Start a server of this kind; yield a client of it."""
    command = [sys.executable, "-W", "ignore", str(SIDE), kind, str(threads)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout
        url = process.stdout.readline().strip()
        limits = httpx.Limits(max_connections=200)
        headers = {"authorization": "Bearer sk-a-benchmark-key"}
        with httpx.Client(base_url=url, headers=headers, timeout=600, limits=limits) as client:
            yield client
        process.terminate()


def ask(client: httpx.Client, prompt: Sequence[int], **fields: Any) -> JsonObject:
    body = {
        "model": "agent",
        "prompt": prompt,
        "max_tokens": TOKENS,
        "temperature": 0.7,
        "seed": 1,
        "logit_bias": {"2": -100},
    } | fields
    answer = client.post("/v1/completions", json=body)
    answer.raise_for_status()
    return answer.json()


def prompts(count: int, seed: int) -> list[list[int]]:
    draw = random.Random(seed)
    return [[draw.randrange(1000, 40000) for _ in range(TOKENS)] for _ in range(count)]


def rate(client: httpx.Client, clients: int, seed: int) -> float:
    """Return new tokens per second of so many requests at once."""
    with ThreadPoolExecutor(clients) as threads:
        begun = time.perf_counter()
        answers = list(threads.map(lambda prompt: ask(client, prompt), prompts(clients, seed)))
        seconds = time.perf_counter() - begun
    tokens = sum(answer["usage"]["completion_tokens"] for answer in answers)
    assert tokens == clients * TOKENS
    return tokens / seconds


def compare(batched: httpx.Client, alone: httpx.Client) -> JsonObject:
    """Return whether greedy answers among 16 at once have the tokens that each has alone, and how far their log-probs are apart."""
    asked = prompts(16, 0)
    fields = {"temperature": 0, "logprobs": 0, "return_token_ids": True}
    with ThreadPoolExecutor(16) as threads:
        together = list(threads.map(lambda prompt: ask(batched, prompt, **fields), asked))
    pairs = [
        (one["choices"][0], ask(alone, prompt, **fields)["choices"][0])
        for one, prompt in zip(together[::4], asked[::4], strict=True)
    ]
    logprobs = [(one["logprobs"]["token_logprobs"], other["logprobs"]["token_logprobs"]) for one, other in pairs]
    return {
        "same_greedy_tokens": all(one["token_ids"] == other["token_ids"] for one, other in pairs),
        "largest_difference": max(abs(a - b) for one, other in logprobs for a, b in zip(one, other, strict=True)),
    }


def measure(rounds: int, threads: int) -> JsonObject:
    """Return the medians of all rounds."""
    with ExitStack() as stack:
        batched, alone = (stack.enter_context(server(kind, threads)) for kind in ("batched", "one-by-one"))
        found: JsonObject = compare(batched, alone)
        ratios: dict[int, list[tuple[float, float]]] = {clients: [] for clients in CLIENTS}
        for number in range(rounds):
            slow: dict[int, float] = {}
            for clients in CLIENTS:
                fast = rate(batched, clients, number * 10 + clients)
                fewer = min(clients, ONE_BY_ONE_CLIENTS)
                slow[fewer] = slow.get(fewer) or rate(alone, fewer, number * 10 + clients)
                ratios[clients].append((fast, slow[fewer]))
    for clients, pairs in ratios.items():
        found[f"batching_speedup_{clients}"] = round(statistics.median(fast / slow for fast, slow in pairs), 2)
        found[f"tokens_per_second_{clients}"] = round(statistics.median(fast for fast, _ in pairs), 1)
    found["tokens_per_second_one_by_one"] = round(statistics.median(slow for pairs in ratios.values() for _, slow in pairs), 1)
    return found | {"rounds": rounds, "threads": threads, "goal": {"batching_speedup_16": 5}}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1, help="threads of each server")
    parser.add_argument("--swaps", type=int, default=0, help="swap so many times instead")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    found = swaps(arguments.swaps) if arguments.swaps else measure(arguments.rounds, arguments.threads)
    print(json.dumps(found, indent=2) if arguments.json else "\n".join(f"{name}: {value}" for name, value in found.items()))


if __name__ == "__main__":
    main()
