"""The last line against log-probs that were filled in with zeros. Curation sets such rows aside by their looks alone.

A log-prob of exactly 0 is a probability of 1, which a policy that is sure of a token really has: it is impossible only where the
policy that training starts from finds the token unlikely, and that is known here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from clawpipe.errors import DataError
from clawpipe.training.data.samples import Sample
from clawpipe.training.model.likelihoods import likelihoods
from clawpipe.training.model.scoring_head import base_of

_LOOKED_AT = 8  # rows, those with the most zeros
_LEAST = 8  # zeros: fewer may be chance
_UNLIKELY = -0.5  # nats a token, their mean


def require_likely_zeros(model: Any, samples: Sequence[Sample], pack_tokens: int) -> None:
    """Raise if recorded log-probs of exactly 0 belong to tokens that `model`, the policy as training begins, finds unlikely.

    Raises:
        DataError: it names the row's group and both figures.
    """
    suspects = sorted(samples, key=lambda sample: -_zeros(sample).sum())[:_LOOKED_AT]
    if sum(_zeros(sample).sum() for sample in suspects) < _LEAST:
        return
    model.eval()
    said = likelihoods(base_of(model), suspects, pack_tokens)
    own = [answer.logprobs[_zeros(row)] for answer, row in zip(said, suspects, strict=True)]
    if (mean := float(np.concatenate(own).mean())) < _UNLIKELY:
        worst = min(range(len(own)), key=lambda index: own[index].sum())
        raise DataError(
            f"{len(own[worst])} of its {len(suspects[worst].trained)} log-probs are recorded as exactly 0, and the policy gives "
            f"such tokens {mean:.2f} nats on average: zeros were filled in",
            f"a row of group {suspects[worst].group}",
            "leave out the log-probs, so that they are recomputed, or use train.method: sft",
        )


def _zeros(sample: Sample) -> np.ndarray:
    """bool [N]"""
    return sample.streams["behaviour"] == 0
