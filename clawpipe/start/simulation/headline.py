"""What the nights came to: the model in service against the base, on held-out questions that nobody asked, by the gate."""

from __future__ import annotations

import pyarrow as pa
from pydantic import BaseModel, ConfigDict, Field

from clawpipe.core.config.gate import Gate
from clawpipe.core.store.datasets import read_dataset
from clawpipe.core.store.home import Home
from clawpipe.core.store.open import open_store
from clawpipe.core.store.refs import DatasetRef
from clawpipe.learn.evaluation.verdict.evidence import build_evidence
from clawpipe.learn.evaluation.verdict.gate import decide
from clawpipe.learn.evaluation.verdict.verdict import Decision, Verdict
from clawpipe.record.nights.status import NightStatus


class Headline(BaseModel):
    """The gate's verdict on the model in service after the last night, as if it were compared with the base now."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    decision: str = Field(description="HOLD as well where no night has promoted a model")
    base: float = Field(description="success of the base")
    champion: float = Field(description="success of the model in service; the base itself where none was promoted")
    interval: tuple[float, float] = Field(description="of the latter")
    n: int
    wins: int
    losses: int
    p: float

    def __str__(self) -> str:
        rates = f"held-out success {self.base:.3f} to {self.champion:.3f}"
        return f"{rates}: {self.wins} won, {self.losses} lost, {self.decision}"


def headline(home: Home, status: NightStatus, rules: Gate) -> Headline:
    """Return the headline of the last night, which has evaluated all models on the same fresh questions.

    Args:
        rules: of the gate.
    """
    made = {step.name: step.artifacts.get("output") for step in status.steps if step.name.startswith("evaluate/")}
    role = "candidate" if status.verdict == Decision.PROMOTE else "champion" if "evaluate/champion" in made else "base"
    base, served = (_table(home, made[f"evaluate/{name}"]) for name in ("base", role))
    version = served["policy_version"][0].as_py()
    return _of(decide(build_evidence(base, None, served, version), rules))


def _table(home: Home, made: object) -> pa.Table:
    assert isinstance(made, DatasetRef)
    return read_dataset(open_store(home), made)


def _of(verdict: Verdict) -> Headline:
    base, served, comparison = verdict.models["base"], verdict.models["candidate"], verdict.comparison
    assert comparison is not None
    return Headline(
        decision=verdict.decision,
        base=base.success or 0.0,
        champion=served.success or 0.0,
        interval=(served.low or 0.0, served.high or 0.0),
        n=comparison.n,
        wins=comparison.wins,
        losses=comparison.losses,
        p=comparison.p_better,
    )
