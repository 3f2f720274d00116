"""The valid range of recorded log-probs, and their kind.

An engine samples from softmax(logits / T). Some engines report the log-probs of that distribution (clawpipe's own engine; vLLM
under `--logprobs-mode processed_logprobs`), others those of softmax(logits), for any T (OpenAI, vLLM by default, `clawpipe serve`).
An importance ratio needs the former: the latter would give an unchanged policy ratios from 0.1 to 2.2 at T = 0.8.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Literal

HIGHEST, LOWEST = 1e-3, -1e4  # engines round slightly above 0; less is a placeholder, not a measurement

UNSAMPLED = "text"  # policy version of samples that no policy sampled, which have no log-probs

# In `extra`: the temperature at which tokens without log-probs were drawn from their policy, which alone can say these log-probs.
SAMPLED_AT = "sampled_at"

_SAME = 1e-3  # in nats; engines round

Kind = Literal["tempered", "raw", "unknown", "none"]  # see `logprobs_kind` in the contract of trajectories


def kind_of(kind: Kind | None, source: str) -> Kind:
    """Return the kind of a row's log-probs; rows from before the column existed are tempered if they are rollouts."""
    return kind or ("tempered" if source == "rollout" else "unknown")


def temperature_of(kind: Kind, sampled_at: float) -> float | None:
    """Return the temperature of log-probs of this kind; None if it is unknown.

    Args:
        sampled_at: the sampling temperature. A ratio needs both to be equal.
    """
    if kind == "unknown":
        return 1.0 if sampled_at == 1 else None
    return {"tempered": sampled_at, "raw": 1.0, "none": None}[kind]


def are_absent(kind: Kind | None, logprobs: Sequence[float]) -> bool:
    """Whether the record of a row's tokens held no log-probs: then all are 0, and of no use."""
    return kind == "none" and not any(logprobs)


def kind_by_temperatures(at_one: Mapping[str, float], at_two: Mapping[str, float]) -> Kind:
    """Return the kind of an engine's log-probs from those that it gives for the same tokens at the temperatures 1 and 2.

    Raw ones are equal. The difference of two tempered ones is halved.
    """
    one, two = _spread(at_one, at_two)
    if one < 10 * _SAME:
        return "unknown"  # fewer than two tokens, or all are as likely: both kinds look alike
    if abs(one - two) < _SAME * max(1.0, one):
        return "raw"
    return "tempered" if math.isclose(one, 2 * two, rel_tol=0.02) else "unknown"


def default_temperature(at_one: Mapping[str, float], by_default: Mapping[str, float]) -> float | None:
    """Return the temperature of tempered log-probs, rounded to thousandths: the ratio of two differences of log-probs."""
    one, default = _spread(at_one, by_default)
    return round(one / default, 3) if one > 10 * _SAME and default > _SAME else None


def _spread(first: Mapping[str, float], second: Mapping[str, float]) -> tuple[float, float]:
    """Return the difference between the likeliest and the least likely of the tokens that both name, in each."""
    common = [token for token in first if token in second and first[token] > -100 and second[token] > -100]
    if len(common) < 2:
        return 0.0, 0.0
    top, low = max(common, key=first.__getitem__), min(common, key=first.__getitem__)
    return first[top] - first[low], second[top] - second[low]
