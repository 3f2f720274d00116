"""Early signs in the metrics of a training: its steps went too far, or the policy narrows.

A sign changes nothing by itself: it is a sentence that says what was seen and what to change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from clawpipe.core.config.methods import Method

RATIO = 20.0  # a token twenty times as likely as when it was sampled; the usual clip lets 1.28 count, dual clip 3
KL = 0.5  # nats per token; nights that go well end below it even where a model learns from nothing (benchmarks/tiny.json: 0.45)
KL_JUMP, KL_SMALL = 3.0, 0.1  # or: a step from which it is three times what it was before, where it is more than PPO stops at
ENTROPY = 0.5  # of the first step's: the policy chooses among the square root of as many tokens

Metrics = Mapping[str, float]


def signs_of(steps: Sequence[Metrics], method: Method) -> list[str]:
    """Return a sentence for each early sign in the metrics of a round's optimizer steps, in a fixed order.

    A metric that a method does not compute gives no sign.
    """
    return [*_ratio_tail(steps), *_divergence(steps), *_narrowing(steps, method)]


def _ratio_tail(steps: Sequence[Metrics]) -> Iterator[str]:
    worst = _peak(steps, "ratio_max")
    if worst and worst["ratio_max"] > RATIO:
        yield (
            f"The largest importance ratio was {worst['ratio_max']:.0f} in optimizer step {_of(worst, steps)}, beyond {RATIO:g}: "
            "few tokens move the policy. Halve train.learning_rate, or stop earlier with train.max_kl."
        )


def _divergence(steps: Sequence[Metrics]) -> Iterator[str]:
    worst = _peak(steps, "approx_kl")
    if worst and (worst["approx_kl"] > KL or _jumps(worst, steps)):
        yield (
            f"The approximate KL to the policy that sampled was {worst['approx_kl']:.2f} nats per token in optimizer step "
            f"{_of(worst, steps)}: the rows no longer show what the policy does. Set train.max_kl to stop before, lower "
            "train.learning_rate, or take fewer optimizer steps."
        )


def _jumps(worst: Metrics, steps: Sequence[Metrics]) -> bool:
    """Whether the divergence jumped to its greatest value; from 0, in the first steps, it may grow by any factor."""
    before = [step["approx_kl"] for step in steps[: steps.index(worst)] if "approx_kl" in step]
    return len(before) > 1 and worst["approx_kl"] > max(KL_SMALL, KL_JUMP * max(before))


def _narrowing(steps: Sequence[Metrics], method: Method) -> Iterator[str]:
    known = [step["entropy"] for step in steps if "entropy" in step]
    if len(known) > 1 and known[-1] < ENTROPY * known[0]:
        yield (
            f"Entropy fell from {known[0]:.3f} to {known[-1]:.3f} nats, below half: rollouts of an item become "
            f"alike and teach less. Lower train.learning_rate, or {method.stays_open}."
        )


def _peak(steps: Sequence[Metrics], name: str) -> Metrics | None:
    known = [step for step in steps if name in step]
    by_value: Callable[[Metrics], float] = lambda step: step[name]  # noqa: E731
    return max(known, key=by_value, default=None)


def _of(step: Metrics, steps: Sequence[Metrics]) -> str:
    return f"{steps.index(step) + 1} of {len(steps)}"
