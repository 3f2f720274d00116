"""What do fifty users' adapters on one engine cost, against one adapter for all of them?

    python benchmarks/adapters.py --json > benchmarks/adapters.json

Fifty rows of as many users are sampled greedily at once: with one adapter for all, with one each, and with none, in turn, several
times; the median of the ratios of neighbouring runs is what counts. Memory is the process's own, after a pass with all of them.
Claims: fifty adapters take less than half of what fifty copies of the base would, and sampling with them takes at
most four times as long as with one.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path
from statistics import median

import torch
from peft import LoraConfig, get_peft_model

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.model.engines.adapters import Adapter
from clawpipe.model.engines.continuous import ContinuousBatch
from clawpipe.model.engines.embedded import EmbeddedEngine
from clawpipe.model.engines.rows import Row
from clawpipe.model.engines.sampling import TurnSampling
from clawpipe.model.policy.base import resolve_base
from clawpipe.model.policy.load import load_base

PROMPT, NEW = 16, 8  # tokens of a row
SLOWER, OF_BASE = 4.0, 0.5


def made(base: Path, directory: Path, rank: int) -> Path:
    """Write an adapter on all linear layers."""
    model = load_base(base, "float32", torch.device("cpu"))
    grown = get_peft_model(model, LoraConfig(r=rank, lora_alpha=rank, target_modules="all-linear", task_type="CAUSAL_LM"))
    for name, weight in grown.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(weight, std=0.01)
    grown.save_pretrained(str(directory))
    return directory


def sampled(engine: EmbeddedEngine, adapters: list[Adapter | None]) -> float:
    """Return the seconds in which a row of each adapter gets its tokens."""
    batch = ContinuousBatch(engine, 100_000)
    for number, adapter in enumerate(adapters):
        batch.add(Row([5 + number, *range(10, 9 + PROMPT)], TurnSampling(0.0, NEW), number, adapter=adapter))
    began = time.perf_counter()
    while not batch.idle:
        batch.step()
    return time.perf_counter() - began


def measured(base: Path, users: int, rank: int, times: int) -> JsonObject:
    with tempfile.TemporaryDirectory() as directory:
        place = made(base, Path(directory), rank)
        engine = EmbeddedEngine(base, None, device="cpu")
        sampled(engine, [None] * users)
        before = _resident()
        own = [Adapter(place, engine.model) for _ in range(users)]
    sampled(engine, list(own))
    grown = _resident() - before
    ways = {"none": [None] * users, "one": [own[0]] * users, "each": list(own)}
    seconds = {name: [] for name in ways}
    for _ in range(times):
        for name, adapters in ways.items():
            seconds[name].append(sampled(engine, adapters))
    return {
        "users": users,
        "rank": rank,
        "adapter_mb": own[0].bytes / 1e6,
        "adapters_mb": users * own[0].bytes / 1e6,
        "grown_mb": grown / 1e6,
        "base_mb": sum(weight.nbytes for weight in engine.model.parameters()) / 1e6,
        "tokens_per_second": {name: users * NEW / median(found) for name, found in seconds.items()},
        "each_to_one": median(each / one for each, one in zip(seconds["each"], seconds["one"], strict=True)),
        "one_to_none": median(one / none for one, none in zip(seconds["one"], seconds["none"], strict=True)),
    }


def missed_claims(figures: JsonObject) -> list[str]:
    missed = []
    if figures["each_to_one"] > SLOWER:
        missed.append(f"sampling with an adapter each takes {figures['each_to_one']:.1f} times as long as with one")
    if figures["adapters_mb"] > OF_BASE * figures["base_mb"] * figures["users"]:
        missed.append("the adapters take more than half of as many copies of the base")
    return missed


def _resident() -> int:
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--base", default="smollm2-135m-instruct")
    parser.add_argument("--users", type=int, default=50)
    parser.add_argument("--rank", type=int, default=8)
    parser.add_argument("--times", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1, help="more than free cores make every pass wait")
    parser.add_argument("--json", action="store_true", help="print JSON")
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    figures = measured(resolve_base(given.base).path, given.users, given.rank, given.times)
    conditions = {"python": platform.python_version(), "cores": os.cpu_count(), "load": os.getloadavg()[0]}
    conditions["torch"] = version("torch")
    figures |= {"base": given.base, "missed_claims": missed_claims(figures), "conditions": conditions}
    print(json.dumps(figures, indent=1) if given.json else figures)
    return 1 if figures["missed_claims"] else 0


if __name__ == "__main__":
    sys.exit(main())
