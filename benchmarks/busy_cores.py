"""How long does a training step take whose waiting threads sleep, against one whose threads spin, on idle cores and on busy ones?

    python benchmarks/busy_cores.py --json > benchmarks/busy_cores.json

A step is a forward and a backward pass of SmolLM2-135M with a LoRA adapter, in a process with as many threads as there are cores.
Sleeping (OMP_WAIT_POLICY=passive, clawpipe's default) and spinning (OpenMP's own default) take turns; the median of the ratios of
neighbouring runs is what counts. A neighbour is a process that computes all the time, one a core.
Claims: beside busy neighbours sleeping takes less time, and on idle cores at most a tenth more.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from statistics import median

from clawpipe.core.basics.json_types import JsonObject

TOKENS, STEPS, ROUNDS = 512, 2, 5
MOST_IDLE = 1.1
_BUSY = [sys.executable, "-S", "-c", "while True: pass"]


def step_seconds() -> float:
    """Return the seconds of a step, in this process."""
    import torch
    from peft import LoraConfig, get_peft_model

    from clawpipe.model.policy.base import resolve_base
    from clawpipe.model.policy.load import load_base

    torch.set_num_threads(os.cpu_count() or 1)
    base = load_base(resolve_base("smollm2-135m-instruct").path, "float32", torch.device("cpu"))
    model = get_peft_model(base, LoraConfig(r=16, target_modules="all-linear", task_type="CAUSAL_LM"))
    ids = torch.arange(TOKENS)[None]

    def steps(count: int) -> float:
        began = time.perf_counter()
        for _ in range(count):
            model(input_ids=ids, labels=ids).loss.backward()
        return time.perf_counter() - began

    steps(1)
    return steps(STEPS) / STEPS


def measured(sleeping: bool) -> float:
    """Return the seconds of a step in a process whose threads sleep or spin."""
    given = {name: value for name, value in os.environ.items() if name not in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")}
    env = given | ({"OMP_WAIT_POLICY": "passive"} if sleeping else {})
    done = subprocess.run([sys.executable, __file__, "--side"], env=env, check=True, stdout=subprocess.PIPE, text=True)
    return float(done.stdout)


@contextmanager
def neighbours(count: int) -> Iterator[None]:
    running = [subprocess.Popen(_BUSY) for _ in range(count)]
    try:
        yield
    finally:
        for process in running:
            process.kill()
            process.wait()


def compared(busy: int) -> JsonObject:
    """Return the seconds of both sides, run by run, and the median ratio of sleeping to spinning."""
    with neighbours(busy):
        runs = [(measured(sleeping=True), measured(sleeping=False)) for _ in range(ROUNDS)]
    sleeping, spinning = ([round(run[side], 3) for run in runs] for side in (0, 1))
    return {"sleeping_s": sleeping, "spinning_s": spinning, "ratio": round(median(one / other for one, other in runs), 3)}


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--side", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.side:
        print(step_seconds())
        return 0
    cores = os.cpu_count() or 1
    found = {"idle": compared(0), "busy": compared(cores)}
    conditions = {"cores": cores, "load_before": [round(one, 1) for one in os.getloadavg()], "machine": platform.machine()}
    if given.json:
        print(json.dumps({**found, "conditions": conditions}, indent=2))
    else:
        for name, one in found.items():
            print(f"{name}: sleeping takes {one['ratio']:.2f} times as long as spinning")
    return int(found["busy"]["ratio"] >= 1 or found["idle"]["ratio"] > MOST_IDLE)


if __name__ == "__main__":
    sys.exit(main())
