"""How far recorded log-probs are from those of the policy that is said to have sampled them, and what rounding explains of that.

Rounding moves single log-probs up or down by chance. A log-prob of another kind or temperature is wrong in a way that adds up: by a
constant, or the more the less likely its token is. So beside distances there are a shift and a tilt, whose chance falls with the
number of tokens: of 16 rows of SmolLM2-135M at temperature 0.8, log-probs at 0.9 tilt by 0.06 and honest ones in bfloat16 by 0.005.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, cast

import numpy as np

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.core.config.quantization import Quantization
from clawpipe.core.store.refs import ModelRef
from clawpipe.errors import DataError
from clawpipe.model.policy.agreement import Bound, bound_of, coarser

_ENGINES = "bfloat16"  # engines may compute in it whatever the policy's dtype is, and rows do not say
BOUND = bound_of(_ENGINES, "none")
RATIO = 0.1  # distance of the mean ratio from 1
FAR = 2.0  # nats per token
_OF_ALL, _OF_A_ROW = (
    0.02,
    0.05,
)  # nats of shift, and tilt; in bfloat16 all of SmolLM2's rows show 0.006, a row of 20 tokens up to 0.03
_CHANCE = 4.0  # standard errors
_FEW = 8  # tokens, fewer of which do not show their noise
_OUTLIER = 2.0  # times the largest distance of a probe of some hundred tokens
_HIGH = 0.99
_LIMIT = 20.0  # of a log-ratio, as in clawpipe.learn.training.losses.policy
_DIGITS = 6


class Agreement(NamedTuple):
    """Figures over the sampled tokens of some rows, in nats.

    Attributes:
        recorded, own: means of the recorded log-probs and of the policy's own ones.
        difference: mean distance of the two.
        ratio: mean importance ratio exp(own - recorded), which is 1 if the policy sampled the tokens.
        high, largest: distance that 99 % of the tokens do not exceed, and that none does.
        shift: mean of own - recorded.
        tilt: slope of own - recorded over the mean of the two, which is about 1 - T / T' for log-probs at T' instead of T.
        noise, spread: standard deviations of what shift and tilt leave of own - recorded, and of the mean of the two.
        parts: the same figures of each row.
    """

    rows: int
    tokens: int
    recorded: float
    own: float
    difference: float
    ratio: float
    high: float
    largest: float
    shift: float
    tilt: float
    noise: float
    spread: float
    parts: tuple[Agreement, ...] = ()

    def summary(self, bound: Bound) -> JsonObject:
        """Return the figures as JSON, with the number of rows that are off in place of theirs."""
        return {name: value for name, value in self._asdict().items() if name != "parts"} | {"rows_off": self.rows_off(bound)}

    def rows_off(self, bound: Bound) -> int:
        """Return how many rows are further off than rounding explains, given the noise of most of them."""
        noise = statistics.median(part.noise for part in self.parts)
        return sum(part.is_off(bound, noise, _OF_A_ROW) for part in self.parts)

    def is_off(self, bound: Bound, noise: float | None = None, systematic: float = _OF_ALL) -> bool:
        """Return whether rounding within `bound` and chance do not explain these figures, its rows aside.

        Args:
            noise: of rounding; None: these figures' own.
            systematic: a shift in nats, and a tilt, that rounding may have beside chance.
        """
        luck = _CHANCE / math.sqrt(self.tokens)
        known = self.noise if noise is None else noise
        chance = luck * (known if self.tokens >= _FEW else max(known, bound.mean))
        return (
            self.high > bound.largest
            or self.largest > _OUTLIER * bound.largest
            or self.difference > bound.mean * (1 + luck)
            or abs(self.shift) > systematic + chance
            or (abs(self.tilt) - systematic) * self.spread > chance
        )


def bound_for(policy: ModelRef) -> Bound:
    """Return the bound for log-probs that some engine has given for a policy."""
    return bound_of(coarser(policy.dtype, _ENGINES), cast(Quantization, policy.quantization))


def agreement(rows: Sequence[Mapping[str, Any]], scored: Sequence[np.ndarray]) -> Agreement:
    """Compute the figures of rows with recorded `logprobs` and a `loss_mask` from a policy's own log-probs of the same tokens."""
    pairs = [_sampled(row, values) for row, values in zip(rows, scored, strict=True)]
    whole = _figures(np.concatenate([recorded for recorded, _ in pairs]), np.concatenate([own for _, own in pairs]), len(rows))
    return whole._replace(parts=tuple(_figures(recorded, own, 1) for recorded, own in pairs if len(own)))


def require_agreement(figures: Agreement, version: str, asked: str, bound: Bound = BOUND) -> None:
    """Raise if recorded log-probs cannot be those of policy `version`, given the figures of the comparison with policy `asked`.

    Raises:
        DataError: the two are one and the figures, or those of a row, are off; or they are further apart than policies are.
    """
    same = version == asked
    rows_off = figures.rows_off(bound)
    if not (figures.is_off(bound) or abs(figures.ratio - 1) > RATIO or rows_off if same else figures.difference > FAR):
        return
    what = (
        f"{figures.tokens} recorded log-probs by policy {version} are {figures.difference:.2f} nats per token from "
        f"{'its own' if same else f'those of policy {asked}'} (mean ratio {figures.ratio:.3g}, 99 % within {figures.high:.2g}, "
        f"a factor of up to {math.exp(min(figures.largest, _LIMIT)):.3g}; {rows_off} of {figures.rows} rows are off)"
    )
    rounding = (
        f"rounding explains {bound.mean:g}, and neither a mean difference of {figures.shift:+.2g} nor one that changes by "
        f"{figures.tilt:+.2g} per nat, as at another temperature"
    )
    fix = "name the policy that sampled, its temperature and the kind of its log-probs (clawpipe ingest), or use train.method: sft"
    raise DataError(f"{what}: {rounding if same else f'more than {FAR} is no staleness'}", "samples.logprobs", fix)


def _sampled(row: Mapping[str, Any], scored: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return recorded and own log-probs of a row's sampled tokens."""
    mask = np.asarray(row["loss_mask"], bool)
    return np.asarray(row["logprobs"], np.float64)[mask], scored.astype(np.float64)[mask]


def _figures(recorded: np.ndarray, own: np.ndarray, rows: int) -> Agreement:
    gap, middle = np.clip(own - recorded, -_LIMIT, _LIMIT), (own + recorded) / 2
    distance, around, spread = np.abs(own - recorded), middle - middle.mean(), middle.std()
    tilt = np.mean(gap * around) / spread**2 if spread > 0 else 0.0
    noise = np.std(gap - tilt * around) * math.sqrt(len(own) / max(len(own) - 2, 1))  # of two fitted numbers
    found = {
        "recorded": recorded.mean(),
        "own": own.mean(),
        "difference": distance.mean(),
        "ratio": np.exp(gap).mean(),
        "high": np.quantile(distance, _HIGH),
        "largest": distance.max(),
        "shift": gap.mean(),
        "tilt": tilt,
        "noise": noise,
        "spread": spread,
    }
    rounded: dict[str, Any] = {name: round(float(value), _DIGITS) for name, value in found.items()}
    return Agreement(rows, len(own), **rounded)
