"""How long do training and sampling take whose threads wait as clawpipe has them wait, on idle cores and beside busy neighbours?

    python benchmarks/busy_cores.py --json > benchmarks/busy_cores.json

Training is a forward and a backward pass of SmolLM2-135M with a LoRA adapter, sampling is one row of its tokens; each in a
process with as many threads as there are cores. Threads that spin briefly (clawpipe's default: GOMP_SPINCOUNT, then sleep) and
those that spin long (OpenMP's own default) take turns; the median of the ratios of neighbouring runs is what counts. A neighbour
is a process that computes all the time, one a core. Claims: beside busy neighbours training takes less time, and on idle cores
neither takes more than a tenth more.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from statistics import median

from clawpipe.core.basics.json_types import JsonObject

TOKENS, STEPS, NEW, ROUNDS = 512, 2, 48, 3
MOST_IDLE = 1.1
_HERE = Path(__file__).parent
_BUSY = [sys.executable, "-S", "-c", "while True: pass"]


def seconds() -> dict[str, float]:
    """Return the seconds of a training step, and of a sampled token, in this process."""
    import torch

    from clawpipe.model.policy.base import resolve_base

    torch.set_num_threads(os.cpu_count() or 1)
    base = resolve_base("smollm2-135m-instruct").path
    return {"training": _training(base), "sampling": _sampling(base)}


def _training(base: Path) -> float:
    import torch
    from peft import LoraConfig, get_peft_model

    from clawpipe.model.policy.load import load_base

    model = load_base(base, "float32", torch.device("cpu"))
    model = get_peft_model(model, LoraConfig(r=16, target_modules="all-linear", task_type="CAUSAL_LM"))
    ids = torch.arange(TOKENS)[None]

    def steps(count: int) -> float:
        began = time.perf_counter()
        for _ in range(count):
            model(input_ids=ids, labels=ids).loss.backward()
        return time.perf_counter() - began

    steps(1)
    return steps(STEPS) / STEPS


def _sampling(base: Path) -> float:
    from clawpipe.model.engines.base import Sampling
    from clawpipe.model.engines.embedded import EmbeddedEngine

    engine = EmbeddedEngine(base, None, device="cpu")

    def turn(tokens: int) -> float:
        began = time.perf_counter()
        engine.begin([[5, *range(10, 40)]]).sample({0: 1}, Sampling(0.0, tokens, ()))
        return time.perf_counter() - began

    turn(4)
    return turn(NEW) / NEW


def measured(briefly: bool) -> dict[str, float]:
    """Return `seconds` of a process whose threads spin briefly, or as OpenMP has it."""
    env = {name: value for name, value in os.environ.items() if name not in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")}
    code = "from clawpipe.core.system.processes import let_waiting_threads_sleep as sleep; sleep();" if briefly else ""
    code += "import json, busy_cores; print(json.dumps(busy_cores.seconds()))"
    done = subprocess.run([sys.executable, "-c", code], cwd=_HERE, env=env, check=True, stdout=subprocess.PIPE, text=True)
    return json.loads(done.stdout)


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
    """Return the seconds of both sides, run by run, and the median ratio of spinning briefly to spinning long, by what is done."""
    with neighbours(busy):
        runs = [(measured(briefly=True), measured(briefly=False)) for _ in range(ROUNDS)]
    return {work: _of(work, runs) for work in ("training", "sampling")}


def _of(work: str, runs: Sequence[tuple[dict[str, float], dict[str, float]]]) -> JsonObject:
    briefly, long = ([round(run[side][work], 4) for run in runs] for side in (0, 1))
    ratio = median(one[work] / other[work] for one, other in runs)
    return {"briefly_s": briefly, "long_s": long, "ratio": round(ratio, 3)}


def missed(found: JsonObject) -> list[str]:
    slow = [f"{work} takes longer on idle cores" for work, one in found["idle"].items() if one["ratio"] > MOST_IDLE]
    return slow + (["training takes longer beside neighbours"] if found["busy"]["training"]["ratio"] >= 1 else [])


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    cores, load = os.cpu_count() or 1, [round(one, 1) for one in os.getloadavg()]
    found: JsonObject = {"idle": compared(0), "busy": compared(cores)}
    if given.json:
        conditions = {"cores": cores, "load_before": load, "machine": platform.machine(), "torch": version("torch")}
        print(json.dumps({**found, "missed_claims": missed(found), "conditions": conditions}, indent=1))
    else:
        for name, one in found.items():
            print(f"{name}: " + ", ".join(f"{work} {of['ratio']:.2f} times as long" for work, of in one.items()))
    return int(bool(missed(found)))


if __name__ == "__main__":
    sys.exit(main())
