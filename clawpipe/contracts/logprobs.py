"""The valid range of recorded log-probs, and their kind.

An engine samples from softmax(logits / T). Some engines report the log-probs of that distribution (clawpipe's own engine; vLLM
under `--logprobs-mode processed_logprobs`), others those of softmax(logits), for any T (OpenAI, vLLM by default, `clawpipe serve`).
An importance ratio needs the former: the latter would give an unchanged policy ratios from 0.1 to 2.2 at T = 0.8.
"""

from __future__ import annotations

from typing import Literal

HIGHEST, LOWEST = 1e-3, -1e4  # engines round slightly above 0; less is a placeholder, not a measurement

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
