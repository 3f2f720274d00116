"""The status of a night with three rounds."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest

from clawpipe.core.store.refs import DatasetRef, ModelRef, StepResult
from clawpipe.learn.evaluation.rounds import Choice, RoundRates, SliceRate
from clawpipe.record.nights.status import Figures, NightStatus, RegisteredModel, StepEntry, entry

BASE = hashlib.sha256(b"base").hexdigest()


def digest(name: str) -> str:
    return hashlib.sha256(name.encode()).hexdigest()


def dataset(name: str, label: str, rows: int, *parents: str) -> DatasetRef:
    return DatasetRef(name=name, digest=digest(label), rows=rows, parents=tuple(sorted(parents)))


def adapter(label: str, *parents: str) -> ModelRef:
    return ModelRef(
        name="adapter",
        digest=digest(label),
        parents=tuple(sorted(parents)),
        base=BASE,
        base_name="smollm2-135m-instruct",
        tool_call_format="pythonic",
        dtype="float32",
        policy_version=digest(label)[:16],
    )


def updates(number: int) -> list[dict[str, Any]]:
    """Return metrics of four optimizer steps of a round, shaped like the trainer's."""
    names = ("loss", "approx_kl", "clip_frac", "entropy", "grad_norm", "ratio_mean", "ratio_max", "lp", "tokens_per_second")
    return [
        {name: 0.01 * (place + 1) / (number + 1) + 0.1 * position for position, name in enumerate(names)}
        | {"step": place + 1, "epoch": 1.0, "learning_rate": 3e-4, "nonfinite": 0, "trained_tokens": 2412, "seconds": 4.5}
        for place in range(4)
    ]


class NightMaker:
    """Writes journal entries one after the other."""

    def __init__(self) -> None:
        self.steps: list[StepEntry] = []

    def add(self, name: str, seconds: float, result: StepResult, cached: bool = False) -> StepResult:
        self.steps.append(entry(name, cached, 0.1 if cached else seconds, f"{name.rpartition('/')[2]}-{digest(name)[:40]}", result))
        return result

    def round(self, number: int, items: DatasetRef, policy: str, cached: bool = False) -> ModelRef:
        part = f"round-{number}"
        raw = dataset("trajectories", f"{part} trajectories", 256, items.digest, policy)
        self.add(f"{part}/generate_rollouts", 41.2, StepResult(output=raw, rows_in=256, rows_out=256), cached)
        self.add(f"{part}/validate", 0.4, StepResult(output=raw, rows_in=256, rows_out=256), cached)
        scores = dataset("scores", f"{part} scores", 256, raw.digest, items.digest)
        self.add(f"{part}/score", 0.9, StepResult(output=scores, rows_in=256, rows_out=256, details={"scores": 256}), cached)
        samples = dataset("samples", f"{part} samples", 176 + number, raw.digest, scores.digest, items.digest)
        aside = {"zero-variance group": 72, "duplicate": 8 - number}
        facts = {"reward_mean": 0.35 + 0.1 * number, "success_rate": 0.3 + 0.1 * number, "groups": 23, "tokens": 40123}
        result = StepResult(output=samples, rows_in=256, rows_out=176 + number, filtered=aside, details=facts)
        self.add(f"{part}/curate", 1.1, result, cached)
        trained = adapter(f"{part} adapter", samples.digest, policy)
        details = {"steps": 4, "nonfinite": 0, "updates": updates(number)}
        self.add(
            f"{part}/train", 61.7, StepResult(output=trained, rows_in=176 + number, rows_out=176 + number, details=details), cached
        )
        return trained


def evaluated(role: str, items: DatasetRef, policy: str, successes: int) -> StepResult:
    results = dataset("eval_results", f"eval {role}", 160, items.digest, policy)
    held = dataset("trajectories", f"heldout {role}", 160, items.digest, policy)
    details = {"success": successes, "items": 160}
    return StepResult(output=results, extras={"trajectories": held}, rows_in=160, rows_out=160, details=details)


def verdict_details(candidate: ModelRef) -> dict[str, Any]:
    figures = {"base": (0.331, 0.263, 0.407, BASE[:16]), "candidate": (0.7, 0.625, 0.766, candidate.policy_version)}
    models = {
        role: {"policy_version": version, "success": success, "low": low, "high": high, "n": 160, "errors": 0}
        for role, (success, low, high, version) in figures.items()
    }
    slices = [
        {"slice": name, "n": 40, "wins": wins, "losses": losses, "effect": (wins - losses) / 40, "p_better": 0.01, "p_worse": 0.9}
        | {"p_regression": 0.99}
        for name, wins, losses in (("calculator", 20, 1), ("price", 15, 15), ("stock", 25, 0), ("weather", 2, 6))
    ]
    comparison = {"n": 160, "wins": 62, "losses": 9, "effect": 53 / 160, "p_better": 1.2e-10, "p_worse": 1.0}
    reason = "The candidate beats the base by 33.1 points on 160 held-out items: 62 items won and 9 lost, p = 1.2e-10 < 0.05."
    return {
        "decision": "PROMOTE",
        "reasons": [reason],
        "incumbent": "base",
        "models": models,
        "comparison": comparison,
        "slices": slices,
    }


def choice() -> Choice:
    """The choice among three rounds, the last of which lost a slice."""
    return Choice(
        round=2,
        of=3,
        policy_version="p2",
        reason="Round 2 of 3 is the candidate: round 3 lost calculator.",
        all_lost=False,
        level=0.004,
        rounds=tuple(_rates(number, 0.1 * number, lost=number == 3) for number in range(4)),
    )


def _rates(number: int, gain: float, *, lost: bool) -> RoundRates:
    changed = {"change": -gain if lost else gain, "error": 0.05} if number else {}
    calculator = SliceRate(successes=20, rollouts=80, items=10, success=0.25, lost=lost, **changed)
    return RoundRates(round=number, policy_version=f"p{number}", success=0.3 + gain, slices={"calculator": calculator})


@pytest.fixture
def night(tmp_path: Path) -> NightStatus:
    """Three rounds, the first one cached, no champion before, promoted."""
    maker = NightMaker()
    items = dataset("task_items", "items", 288)
    maker.add("make_items", 0.3, StepResult(output=items, rows_out=288), cached=True)
    policy = BASE
    for number in (1, 2, 3):
        model = maker.round(number, items, policy, cached=number == 1)
        policy = model.digest
    maker.add("evaluate/base", 22.0, evaluated("base", items, BASE, 53))
    maker.add("evaluate/candidate", 23.5, evaluated("candidate", items, model.digest, 112))
    verdict = verdict_details(model)
    maker.add("gate", 0.2, StepResult(rows_in=160, rows_out=160, details=verdict))
    registered = {"name": "clawpipe-agent", "version": "3", "digest": model.digest}
    maker.add("register", 9.8, StepResult(details={"model": registered}))
    maker.add("promote", 0.6, StepResult(details={"aliases": ["champion"]}))
    run_dir = tmp_path / "home" / "runs" / "2031-05-04-0123456789"
    run_dir.mkdir(parents=True)
    return NightStatus(
        night=run_dir.name,
        verdict="PROMOTE",
        reasons=verdict["reasons"],
        steps=maker.steps,
        heldout={
            "base": Figures(success=0.331, low=0.263, high=0.407, n=160),
            "champion": None,
            "candidate": Figures(success=0.7, low=0.625, high=0.766, n=160),
        },
        model=RegisteredModel(**registered, aliases=["champion"]),
        policy_version=model.policy_version,
        seconds=371.4,
        run_dir=str(run_dir),
    )
