"""Read preference pairs that exist only as text, and render them into token ids."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.parquet as pq

from clawpipe.core.basics.json_types import Row
from clawpipe.core.conversation.messages import Message
from clawpipe.errors import DataError
from clawpipe.model.policy.text import RendererOf, TextPair, text_pair

_COLUMNS = ["prompt", "chosen", "rejected", "weight", "tools"]


def load_text_pairs(
    paths: Sequence[str], renderer_of: RendererOf, preamble: Sequence[Message]
) -> tuple[list[TextPair], dict[str, int]]:
    """Return pairs as token ids in stored order, and how many were filtered for each reason.

    Args:
        paths: Parquet files of the `preference_pairs` contract, all of whose pairs are text only.
        renderer_of: returns the policy's renderer with the environment's tools or those of a pair.
        preamble: the environment's messages, put before every prompt that has no system message and no tools.

    Raises:
        DataError: no pair remains, or a file cannot be read.
    """
    results = [text_pair(row, renderer_of, preamble) for row in _read(paths)]
    pairs = [result for result in results if not isinstance(result, str)]
    filtered = dict(Counter(result for result in results if isinstance(result, str)))
    if not pairs:
        raise DataError("no preference pair remains to train on", ", ".join(paths), f"filtered: {filtered}")
    return pairs, filtered


def _read(paths: Sequence[str]) -> list[Row]:
    try:
        return pa.concat_tables([pq.read_table(path, columns=_COLUMNS) for path in paths]).to_pylist()
    except (OSError, pa.ArrowException) as error:
        raise DataError(f"pairs cannot be read: {error}", ", ".join(paths), "run the step that made them again") from error
