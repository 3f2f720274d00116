"""What is learnt from conversations whose scores are numbers, none of which says what was a success."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median_high

import pyarrow.compute as pc

from clawpipe.core.store.artifacts import Store
from clawpipe.core.store.datasets import read_dataset
from clawpipe.core.store.refs import DatasetRef


def are_labels(numbers: Sequence[float]) -> bool:
    """Whether the signs of the numbers say which conversations were good and which were bad."""
    return bool(numbers) and min(numbers) < 0 < max(numbers)


def least_imitated(numbers: Sequence[float]) -> float:
    """Return the least number that is imitated, so that about the better half is: never the lowest, unless all are equal."""
    lowest = min(numbers)
    return max(median_high(numbers), min((number for number in numbers if number > lowest), default=lowest))


def unsaid_in(store: Store, scores: Sequence[DatasetRef]) -> list[float]:
    """Return the scores of whole conversations; none where some score says success, or praises a turn.

    Raises:
        DataError: a dataset is missing or damaged.
    """
    said = (
        pc.field("success").is_null() & pc.field("turn").is_null(),
        (pc.field("success") == pc.scalar(True)) | (pc.field("turn").is_valid() & (pc.field("value") > 0)),
    )
    numbers: list[float] = []
    for ref in scores:
        table = read_dataset(store, ref, ["turn", "value", "success"])
        unsaid, good = (table.filter(one) for one in said)
        if good.num_rows:
            return []
        numbers += unsaid["value"].to_pylist()
    return numbers
