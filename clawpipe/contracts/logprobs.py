"""What a recorded log-prob may be, and what it is a log-prob of.

An engine samples from softmax(logits / T). Some report the log-probs of just that distribution (clawpipe's own engine; vLLM under
`--logprobs-mode processed_logprobs`), others those of softmax(logits), whatever T was (OpenAI, vLLM by default, `clawpipe serve`).
An importance ratio needs the former: taken for them, the latter give an unchanged policy ratios from 0.1 to 2.2 at T = 0.8.
"""

from __future__ import annotations

from typing import Literal

HIGHEST, LOWEST = 1e-3, -1e4  # engines round slightly above 0; less is a placeholder, not a measurement

Kind = Literal["tempered", "raw", "unknown", "none"]  # see `logprobs_kind` in the contract of trajectories


def kind_of(kind: Kind | None, source: str) -> Kind:
    """The kind of a row's log-probs; where the row, written before there were kinds, does not say, what such rows meant."""
    return kind or ("tempered" if source == "rollout" else "unknown")


def temperature_of(kind: Kind, sampled_at: float) -> float | None:
    """The temperature that log-probs of this kind are log-probs at; None where that is not known.

    Args:
        sampled_at: the sampling temperature. Only where the two are equal can a ratio be taken.
    """
    if kind == "unknown":
        return 1.0 if sampled_at == 1 else None
    return {"tempered": sampled_at, "raw": 1.0, "none": None}[kind]
