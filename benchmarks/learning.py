"""How much does each rollout teach? A night's rounds beside TRL's GRPOTrainer: the same base, environment, items and sampler.

    python benchmarks/learning.py --log learning.jsonl --json 0 1 2 > benchmarks/learning.json

Both roll out the same train items by clawpipe's engine, 256 rollouts before every four optimizer steps, with the same adapter.
What differs is what is learnt from them: TRL's own advantages, loss, optimizer and schedule, at each of `RATES`; clawpipe's as its
config has them. After every 256 rollouts the policy answers the same held-out items. A line of the log is one run of one seed;
runs that are in it are not made again.

Claim: after each 256 rollouts, clawpipe's mean over the seeds is above that of TRL's best rate, which is the one with the best mean
at the end, and the intervals of the two (Wilson, 95 %, of all seeds' items) do not overlap.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from demo_seeds import conditions
from methods import append, read

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.core.config import NightConfig, load_config
from clawpipe.core.config.load import with_settings
from clawpipe.core.config.night import Rollouts, Runtime
from clawpipe.core.store.datasets import read_dataset
from clawpipe.core.store.home import Home
from clawpipe.core.store.open import open_store
from clawpipe.core.store.refs import DatasetRef, ModelRef
from clawpipe.learn.evaluation.heldout.heldout import evaluate
from clawpipe.learn.evaluation.verdict.statistics import wilson
from clawpipe.play.rollouts.generate import roll_out, round_items
from clawpipe.play.workers.episodes import derive_seed
from clawpipe.play.workers.pool import WorkerPool
from flows.policies import untrained

CONFIG = Path("configs/methods/grpo.yaml")
RATES = (1e-4, 3e-4, 1e-3)
LABEL = "learning"
CONFIDENCE = 0.95


@dataclass(frozen=True)
class Side:
    """What both sides of one seed share."""

    config: NightConfig
    home: Home
    pool: WorkerPool
    base: ModelRef
    items: DatasetRef
    heldout: DatasetRef

    @property
    def rollouts(self) -> Rollouts:
        assert self.config.rollouts
        return self.config.rollouts

    def ordinals(self, number: int) -> list[int]:
        """Return the train items of a round, those of the night's."""
        wanted = [[self.rollouts.items]] * self.config.rounds
        return round_items([self.config.drawn.train_items], wanted, number, self.seed("items"))

    def seed(self, purpose: str, *parts: int) -> int:
        return derive_seed(self.config.seed, LABEL, purpose, *parts)

    def solved(self, policy: ModelRef) -> int:
        """Return how many held-out items a policy solves."""
        store, once = open_store(self.home), self.rollouts.once(self.config.evaluation.temperature)
        played = partial(roll_out, store, self.pool, self.home.work, environment=self.config.drawn, config=once)
        made = evaluate(store, partial(played, seed=self.seed("heldout")), self.heldout, policy, self.config.drawn)
        return sum(read_dataset(store, made.dataset, ["success"])["success"].to_pylist())


def run_night(home: Home, config: Path, settings: Sequence[str]) -> JsonObject:
    """Run clawpipe's side to its end, or find it there, and return its status."""
    command = [sys.executable, "-m", "clawpipe.cli.main", "run", "--config", str(config), "--json"]
    command += [part for setting in settings for part in ("-o", setting)]
    done = subprocess.run(command, env=os.environ | {"CLAWPIPE_HOME": str(home.root)}, stdout=subprocess.PIPE, check=True)
    return json.loads(done.stdout)


def made_by(status: JsonObject, name: str) -> JsonObject:
    return next(step["artifacts"]["output"] for step in status["steps"] if step["name"] == name)


@contextmanager
def side_of(home: Home, config: Path, settings: Sequence[str]) -> Iterator[tuple[Side, list[ModelRef]]]:
    """Run clawpipe's night of a seed, and yield what it shares with TRL's run, and its policies after each round."""
    status = run_night(home, config, settings)
    night = load_config(config, settings)
    night = with_settings(night, {"environment.seed": derive_seed(night.seed, LABEL)})  # as a night of this label draws items
    items, heldout = (DatasetRef.model_validate(made_by(status, name)) for name in ("make_items", "draw_heldout"))
    trained = [ModelRef.model_validate(made_by(status, f"round-{number + 1}/train")) for number in range(night.rounds)]
    with WorkerPool(Runtime(device="cpu", workers=1), home.logs) as pool:
        yield Side(night, home, pool, untrained(night.model), items, heldout), trained


def run_seed(given: argparse.Namespace, seed: int) -> None:
    """Make the runs of a seed that the log does not hold."""
    from learning_trl import policies  # TRL takes seconds to import

    names = ["clawpipe", *(f"trl {rate:g}" for rate in given.rates)]
    wanted = [name for name in names if not any((row["run"], row["seed"]) == (name, seed) for row in read(given.log))]
    settings = [f"seed={seed}", f"night={LABEL}", *given.override]
    with tempfile.TemporaryDirectory() as directory, side_of(Home(Path(directory)), given.config, settings) as (side, trained):
        for name in wanted:
            after = trained if name == "clawpipe" else policies(side, float(name.split()[1]))
            solved = [side.solved(policy) for policy in after]
            line = {"run": name, "seed": seed, "solved": solved, "items": side.heldout.rows, "overrides": given.override}
            append(given.log, line | {"conditions": conditions() | {"config": str(given.config)}})
            print(json.dumps(line), file=sys.stderr, flush=True)


def summary(lines: Sequence[JsonObject]) -> JsonObject:
    """Return each run's success after each round over its seeds, with intervals; TRL's best rate; and the claims that fail."""
    curves: dict[str, list[JsonObject]] = {}
    for name in sorted({line["run"] for line in lines}):
        own = [line for line in lines if line["run"] == name]
        curves[name] = [figure([line["solved"][place] for line in own], own) for place in range(len(own[0]["solved"]))]
    rivals = {name: curve for name, curve in curves.items() if name != "clawpipe"}
    best = max(rivals, key=lambda name: rivals[name][-1]["success"])
    pairs = zip(curves["clawpipe"], rivals[best], strict=True)
    failed = [place + 1 for place, (ours, theirs) in enumerate(pairs) if ours["low"] <= theirs["high"]]
    return {"curves": curves, "best_rate": best, "not_ahead_after_round": failed}


def figure(solved: Sequence[int], runs: Sequence[JsonObject]) -> JsonObject:
    items = sum(run["items"] for run in runs)
    low, high = wilson(sum(solved), items, CONFIDENCE)
    return {"success": round(sum(solved) / items, 4), "low": round(low, 4), "high": round(high, 4), "seeds": len(runs)}


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("seeds", type=int, nargs="*", default=[0, 1, 2])
    parser.add_argument("--log", type=Path, required=True, help="a line for each run that ended")
    parser.add_argument("--config", type=Path, default=CONFIG)
    parser.add_argument("--rates", type=float, nargs="*", default=list(RATES), help="learning rates of TRL's runs")
    parser.add_argument("-o", "--override", action="append", default=[], help="a setting of both sides")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    for seed in given.seeds:
        run_seed(given, seed)
    found = summary(read(given.log))
    print(json.dumps(found | {"runs": read(given.log)}, indent=2) if given.json else json.dumps(found, indent=2))
    return 1 if found["not_ahead_after_round"] else 0


if __name__ == "__main__":
    sys.exit(main())
