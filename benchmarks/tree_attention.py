"""What does a pack of rows that branch cost, where each block of tokens attends only with what it sees? CPU seconds and memory.

    python benchmarks/tree_attention.py [--items 8] [--each 8] [--base smollm2-135m-instruct] >> benchmarks/tree_attention.jsonl

Rows as the demo's are: one preamble, a question for each item, and what each rollout says and reads, all of random tokens. Each way
is forward and backward over all of them, with LoRA on a CPU: in packs of 1,024 tokens with a dense mask over the whole pack, and in
packs of 1,024 and 2,048 tokens by blocks. They take turns in this process; the least of the CPU seconds counts, the peak is above
the memory before, and `difference` is that of the gradient, by its norm, from the first way's.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np
import torch
from torch import Tensor
from training_memory import peak_above

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.core.config.training import Train
from clawpipe.learn.children.memory import lower_mmap_threshold
from clawpipe.learn.training.data.packing import build_pack, fill_packs
from clawpipe.learn.training.data.rows import Sample
from clawpipe.learn.training.model import tree_attention
from clawpipe.learn.training.model.build import build_model
from clawpipe.learn.training.model.scoring_head import install_scoring_head, score_pack
from clawpipe.learn.training.request import TrainRequest
from clawpipe.model.policy.base import resolve_base

PREAMBLE, QUESTION, ANSWER, TRAINED = 220, 20, 35, 19  # tokens
BLOCK = tree_attention._BLOCK  # pyright: ignore[reportPrivateUsage]
WAYS = {"dense_1024": (1 << 30, 1024), "blocks_1024": (BLOCK, 1024), "blocks_2048": (BLOCK, 2048)}


class Cost(NamedTuple):
    cpu_seconds: float
    peak_bytes: float
    tokens: int


def rows(items: int, each: int) -> list[Sample]:
    draw = np.random.default_rng(0)
    preamble, made = draw.integers(5, 40_000, PREAMBLE), []
    for item in range(items):
        question = draw.integers(5, 40_000, QUESTION)
        for _ in range(each):
            ids = np.concatenate([preamble, question, draw.integers(5, 40_000, ANSWER)])
            trained = np.arange(len(ids) - TRAINED, len(ids))
            made.append(Sample(str(item), ids, trained, 1.0, 1.0, {"behaviour": np.zeros(TRAINED, np.float32)}))
    return made


def trainable(base: str) -> Any:
    """Return the base with an adapter whose every weight gets a gradient."""
    request = TrainRequest(
        samples=(),
        base=str(resolve_base(base).path),
        base_digest="benchmark",
        dtype="float32",
        config=Train(optimizer_steps=1),
        temperature=1.0,
        seed=0,
        device="cpu",
        output="",
    )
    model = build_model(request)
    install_scoring_head(model)
    for name, weight in model.named_parameters():
        if "lora_B" in name:
            weight.data.normal_(0, 0.02)
    return model.train()


def once(model: Any, samples: Sequence[Sample], way: str) -> tuple[Cost, Tensor]:
    """Go forward and backward over all rows; return what it cost, and the gradient."""
    block, pack_tokens = WAYS[way]
    packs = [build_pack([samples[row] for row in pack]) for pack in fill_packs(samples, range(len(samples)), pack_tokens)]
    model.zero_grad()

    def work() -> None:
        for pack in packs:
            score_pack(model, pack).logprobs.sum().backward()

    with patch.object(tree_attention, "_BLOCK", block):
        began = time.process_time()
        peak = peak_above(work)
        seconds = time.process_time() - began
    gradient = torch.cat([weight.grad.flatten() for weight in model.parameters() if weight.grad is not None])
    return Cost(seconds, peak, sum(pack["input_ids"].numel() for pack in packs)), gradient


def measured(model: Any, samples: Sequence[Sample], repeats: int) -> JsonObject:
    costs: dict[str, list[Cost]] = {way: [] for way in WAYS}
    gradients: dict[str, Tensor] = {}
    for _ in range(repeats):
        for way in WAYS:
            cost, gradients[way] = once(model, samples, way)
            costs[way].append(cost)
    first = next(iter(WAYS))
    least = {way: min(cost.cpu_seconds for cost in made) for way, made in costs.items()}
    return {
        way: {
            "tokens": made[0].tokens,
            "cpu_seconds": round(least[way], 2),
            "times_faster": round(least[first] / least[way], 2),
            "peak_mb": round(min(cost.peak_bytes for cost in made) / 2**20),
            "difference": float((gradients[way] - gradients[first]).norm() / gradients[first].norm()),
        }
        for way, made in costs.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--items", type=int, default=8)
    parser.add_argument("--each", type=int, default=8, help="rollouts of an item")
    parser.add_argument("--base", default="smollm2-135m-instruct")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    lower_mmap_threshold()  # as in a training's process
    shape = {"base": arguments.base, "items": arguments.items, "each": arguments.each, "threads": arguments.threads}
    made = measured(trainable(arguments.base), rows(arguments.items, arguments.each), arguments.repeats)
    print(json.dumps({**shape, "torch": torch.__version__, **made}))


if __name__ == "__main__":
    main()
