"""What the stages of a night took: seconds, tokens, accelerator seconds, and their price."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from clawpipe.core.config.metrics import Prices
from clawpipe.record.nights.status import StepEntry

_ROLLOUTS = "generate_rollouts"
_HOUR, _MILLION = 3600, 1_000_000


@dataclass
class Usage:
    """The sum over the steps of a stage: its rounds, or the models that it evaluates."""

    seconds: float = 0.0
    accelerator_seconds: float | None = None  # None: none, or not measured
    tokens: dict[str, int] = field(default_factory=dict)  # sampled or trained; those that were counted

    def add(self, step: StepEntry) -> None:
        self.seconds += step.seconds
        if step.accelerator_seconds is not None:
            self.accelerator_seconds = (self.accelerator_seconds or 0.0) + step.accelerator_seconds
        for kind, count in _tokens(step):
            self.tokens[kind] = self.tokens.get(kind, 0) + count


def by_stage(steps: Iterable[StepEntry]) -> dict[str, Usage]:
    """Return what each stage took, in the night's order: `train` stands for `round-1/train`, `round-2/train` and so on."""
    stages: dict[str, Usage] = {}
    for step in steps:
        stages.setdefault(_stage(step.name), Usage()).add(step)
    return stages


def price(stage: str, usage: Usage, prices: Prices) -> float:
    """Return what a stage cost, in the list's currency."""
    sampled = usage.tokens.get("sampled", 0) if stage == _ROLLOUTS else 0
    hours = usage.seconds * prices.machine_hour + (usage.accelerator_seconds or 0.0) * prices.accelerator_hour
    return hours / _HOUR + sampled * prices.million_tokens / _MILLION


def _stage(name: str) -> str:
    """Return `train` of `round-1/train`, `score` of `measure/score`, and `evaluate` of `evaluate/base`."""
    before, slash, after = name.partition("/")
    return after if slash and (before.startswith("round-") or before == "measure") else before


def _tokens(step: StepEntry) -> Iterator[tuple[str, int]]:
    details = step.details
    if "sampled_tokens" in details:
        yield "sampled", details["sampled_tokens"]
    elif "reply_tokens" in details:  # the mean of a held-out reply
        yield "sampled", round(details["reply_tokens"] * step.rows_in)
    if updates := details.get("updates"):
        yield "trained", round(sum(update.get("trained_tokens", 0) for update in updates))
