"""Read preference pairs that exist only as text, and render them into rows that can be trained on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from clawpipe.core.basics.json_types import Row
from clawpipe.core.conversation.messages import Message
from clawpipe.errors import DataError
from clawpipe.learn.training.data.samples import TOO_LONG, Readable, Sample
from clawpipe.model.policy.text import RendererOf, Rendering, TextPair, text_pair

_COLUMNS = ["group_id", "prompt", "chosen", "rejected", "weight", "tools"]


def load_text_pairs(
    paths: Sequence[str],
    renderer_of: RendererOf,
    preamble: Sequence[Message],
    readable: Readable = Readable(),  # noqa: B008  # a tuple
) -> tuple[list[Sample], dict[str, int]]:
    """Return the rows of pairs in stored order, and how many pairs were filtered for each reason.

    Args:
        paths: Parquet files of the `preference_pairs` contract, all of whose pairs are text only.
        renderer_of: returns the policy's renderer with the environment's tools or those of a pair.
        preamble: the environment's messages, put before every prompt that has no system message and no tools.
        readable: what the model can read; a pair of which one side is longer is filtered.

    Returns:
        2P rows, ordered as those of `load_pairs`, at temperature 1 and without streams; and counts by reason.

    Raises:
        DataError: no pair remains, or a file cannot be read.
    """
    rendered = ((row["group_id"], text_pair(row, renderer_of, preamble)) for row in _read(paths))
    results = [(group, TOO_LONG if _is_too_long(pair, readable) else pair) for group, pair in rendered]
    filtered = dict(Counter(pair for _, pair in results if isinstance(pair, str)))
    pairs = [(group, pair) for group, pair in results if not isinstance(pair, str)]
    if not pairs:
        raise DataError("no preference pair remains to train on", ", ".join(paths), f"filtered: {filtered}")
    return [_row(group, side, pair.weight) for group, pair in pairs for side in (pair.chosen, pair.rejected)], filtered


def _is_too_long(pair: TextPair | str, readable: Readable) -> bool:
    if isinstance(pair, str) or readable.longest is None:
        return False
    return max(len(ids) for ids, _ in (pair.chosen, pair.rejected)) > readable.longest


def _row(group: str, side: Rendering, weight: float) -> Sample:
    ids, mask = side
    return Sample(group, np.array(ids), np.flatnonzero(mask), temperature=1.0, weight=weight, streams={})


def _read(paths: Sequence[str]) -> list[Row]:
    try:
        return pa.concat_tables([pq.read_table(path, columns=_COLUMNS) for path in paths]).to_pylist()
    except (OSError, pa.ArrowException) as error:
        raise DataError(f"pairs cannot be read: {error}", ", ".join(paths), "run the step that made them again") from error
