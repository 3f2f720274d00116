"""A tiny night in this process, without Prefect: `python benchmarks/tiny_side.py THREADS SEED ...`, a JSON line per seed.

It calls the library's steps one after the other: items; in each round rollouts, scores, curation and training; then base and
candidate on the held-out items, and the gate. Environment variables decide which instructions compute.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import redirect_stdout
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import torch

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.core.config import NightConfig, load_config
from clawpipe.core.config.load import with_settings
from clawpipe.core.config.night import Rollouts, Runtime
from clawpipe.core.store.artifacts import Store
from clawpipe.core.store.datasets import read_dataset
from clawpipe.core.store.refs import DatasetRef, ModelRef
from clawpipe.data.curation.runner import curate
from clawpipe.learn.evaluation.heldout.draw import draw_heldout, make_task_items
from clawpipe.learn.evaluation.heldout.heldout import evaluate
from clawpipe.learn.evaluation.verdict.evidence import build_evidence
from clawpipe.learn.evaluation.verdict.gate import decide
from clawpipe.learn.evaluation.verdict.verdict import Verdict
from clawpipe.learn.training import produce
from clawpipe.learn.training.request import TrainRequest
from clawpipe.learn.training.run import train
from clawpipe.model.policy.base import resolve_base
from clawpipe.model.policy.version import base_ref
from clawpipe.play.environments.discovery import load_environment
from clawpipe.play.judging.scoring import score_dataset
from clawpipe.play.judging.verifier import VerifierScorer
from clawpipe.play.rollouts.generate import Chunk, generate_chunk, roll_out, round_items
from clawpipe.play.workers.episodes import derive_seed
from clawpipe.play.workers.pool import WorkerPool
from clawpipe.play.workers.request import Job
from clawpipe.play.workers.worker import Worker

CONFIG = Path(__file__).parents[1] / "configs" / "tiny.yaml"


class Here(WorkerPool):
    """A pool whose only worker is this process."""

    def __init__(self, logs: Path) -> None:
        super().__init__(Runtime(device="cpu", workers=1), logs)
        self._worker = Worker("cpu")

    def run(self, job: Job) -> Any:
        return self._worker.run(job)


@dataclass(frozen=True)
class Night:
    """The arguments that all steps share."""

    config: NightConfig
    rollouts: Rollouts
    threads: int
    store: Store
    pool: WorkerPool
    work: Path

    def seed(self, purpose: str, *parts: int) -> int:
        return derive_seed(self.config.seed, purpose, *parts)


def main(threads: int, seeds: list[int], out: Callable[[str], None]) -> None:
    config = load_config(CONFIG)
    assert config.rollouts
    for seed in seeds:
        torch.set_num_threads(threads)
        with tempfile.TemporaryDirectory() as directory:
            place = Path(directory)
            seeded = with_settings(config, {"seed": seed, "environment.seed": seed})  # so that items differ as well
            night = Night(seeded, config.rollouts, threads, Store(place / "store", None), Here(place / "logs"), place / "work")
            out(json.dumps(run(night)))


def run(night: Night) -> JsonObject:
    """Return one row of the table."""
    began = time.perf_counter()
    config, store = night.config, night.store
    items = make_task_items(store, config.environment).dataset
    drawn = draw_heldout(store, items, None, config.environment, seen={})
    digest = resolve_base(config.model.base).digest
    base = policy = base_ref(
        config.model.base, digest, config.model.tool_call_format, config.model.dtype, config.model.quantization
    )
    updates: list[JsonObject] = []
    for number in range(config.rounds):
        policy, made = learn(night, items, drawn.extra("all"), policy, number)
        updates += made
    before, after = results(night, drawn.dataset, base), results(night, drawn.dataset, policy)
    verdict = decide(build_evidence(before, None, after, policy.policy_version), config.gate)
    return {"seed": config.seed, "seconds": round(time.perf_counter() - began, 1)} | figures(verdict, updates)


def learn(
    night: Night, items: DatasetRef, decontamination_items: DatasetRef, policy: ModelRef, number: int
) -> tuple[ModelRef, list[JsonObject]]:
    """Return the policy after round `number`, and the metrics of the optimizer steps."""
    config, store, environment = night.config, night.store, night.config.environment
    ordinals = tuple(round_items([environment.train_items], [[night.rollouts.items]] * (number + 1), number, night.seed("items")))
    chunk = Chunk(ordinals=ordinals, together=ordinals)
    seed = night.seed("round", number)
    rollouts = generate_chunk(store, night.pool, night.work, items, policy, environment, night.rollouts, chunk, seed).dataset
    scorer = VerifierScorer(load_environment(environment.name, environment.options))
    scores = score_dataset(store, rollouts, items, [scorer]).dataset
    samples = curate(store, [rollouts], [scores], decontamination_items, config.curation, config.train.method).dataset
    return train_on(night, samples, policy, number)


def train_on(night: Night, samples: DatasetRef, policy: ModelRef, number: int) -> tuple[ModelRef, list[JsonObject]]:
    with patch.object(produce, "run_training", train_here):
        trained = produce.train_policy(
            night.store,
            night.work,
            samples,
            policy,
            None,
            night.config.train,
            temperature=night.rollouts.temperature,
            seed=night.seed("train", number) % 2**32,
            runtime=Runtime(device="cpu", train_threads=night.threads),
            on_progress=lambda metrics: None,
        )
    return trained.model, trained.details["updates"]


def train_here(request: TrainRequest, work: Path, timeout: float, on_progress: Callable[[JsonObject], None]) -> Path:
    """Replace `run_training`, which starts a process."""
    work.mkdir(parents=True)
    train(request, work, on_progress)
    return Path(request.output)


def results(night: Night, items: DatasetRef, policy: ModelRef) -> pa.Table:
    """Return `eval_results` of a policy on held-out items."""
    config, once = night.config, night.rollouts.once(night.config.evaluation.temperature)
    played = partial(roll_out, night.store, night.pool, night.work, environment=config.environment, config=once)
    made = evaluate(night.store, partial(played, seed=night.seed("heldout")), items, policy, config.environment)
    return read_dataset(night.store, made.dataset)


def figures(verdict: Verdict, updates: list[JsonObject]) -> JsonObject:
    assert verdict.comparison
    success = {role: verdict.models[role].success for role in ("base", "candidate")}
    return {
        **{role: round(share or 0.0, 3) for role, share in success.items()},
        "gain": round(verdict.comparison.effect, 3),
        "p": verdict.comparison.p_better,
        "verdict": str(verdict.decision),
        "largest_ratio": round(max(update["ratio_max"] for update in updates), 2),
        "approx_kl": round(max(update["approx_kl"] for update in updates), 3),
    }


if __name__ == "__main__":
    answers = sys.stdout
    with redirect_stdout(sys.stderr):  # output of libraries must not mix with the results
        main(int(sys.argv[1]), [int(seed) for seed in sys.argv[2:]], lambda line: print(line, file=answers, flush=True))
