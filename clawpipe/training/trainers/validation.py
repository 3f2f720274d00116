"""Groups that are kept out of training to see when it stops to help."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from clawpipe.errors import DataError
from clawpipe.training.data.samples import Sample


def hold_out(rows: Sequence[Sample], share: float, seed: int) -> tuple[list[Sample], list[Sample]]:
    """(to train on, kept out): `share` of the groups, at least one, chosen by `seed`; the order of rows stays.

    Raises:
        DataError: no group would be left to train on.
    """
    groups = list(dict.fromkeys(row.group for row in rows))
    count = max(1, round(share * len(groups)))
    if count == len(groups):
        raise DataError("a single group cannot be split", "train.validation", "train on more groups, or set it to 0")
    order = np.random.default_rng((seed, 2**31)).permutation(len(groups))  # apart from the generators that shuffle epochs
    kept = {groups[index] for index in order[:count]}
    return [row for row in rows if row.group not in kept], [row for row in rows if row.group in kept]
