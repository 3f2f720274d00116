"""Read preference pairs that exist only as text, and render them into token ids.

They are rendered like conversations (clawpipe.training.data.text_rows), after the environment's preamble or in the context
of the pair: a model's chat template may drop tools and calls, and would turn text that spells a marker into one. A side is
exactly one assistant turn, because TRL's trainer takes everything after the prompt as the policy's words.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import TypedDict

import pyarrow as pa
import pyarrow.parquet as pq

from clawpipe.errors import DataError
from clawpipe.json_types import Row
from clawpipe.messages import Message
from clawpipe.policy.renderer import Renderer
from clawpipe.training.data.text_rows import RendererOf, context_of

_COLUMNS = ["prompt", "chosen", "rejected", "weight", "tools"]


class TextPair(TypedDict):
    """A preference pair rendered into token ids."""

    prompt_ids: list[int]
    chosen_ids: list[int]
    rejected_ids: list[int]
    weight: float


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


def text_pair(row: Row, renderer_of: RendererOf, preamble: Sequence[Message]) -> TextPair | str:
    """Return the pair as token ids, or why it cannot be rendered."""
    if row["weight"] is None or not math.isfinite(row["weight"]):
        return "not_finite"
    prompt, *sides = (tuple(map(Message.from_dict, row[part] or ())) for part in ("prompt", "chosen", "rejected"))
    for side in sides:
        if sum(message.role == "assistant" for message in side) > 1:
            return "more_than_one_assistant_turn_as_text"
        if not side or side[0].role != "assistant":
            return "no_assistant_turn_after_the_prompt"
    renderer, shown = context_of(row["tools"], prompt, renderer_of, preamble)
    before = [*shown, *prompt]
    try:
        ids = renderer.prompt(before)
        chosen, rejected = (_turn(renderer, before, side[0], len(ids)) for side in sides)
    except (ValueError, TypeError, AttributeError):  # a name that the format cannot write, or arguments that are no JSON object
        return "calls_cannot_be_written"
    return {"prompt_ids": ids, "chosen_ids": chosen, "rejected_ids": rejected, "weight": row["weight"]}


def _turn(renderer: Renderer, before: Sequence[Message], turn: Message, start: int) -> list[int]:
    """Return the ids of the policy's turn with its end marker, which follow the `start` ids of the context."""
    ids, mask = renderer.spans([*before, turn])
    return [token for token, sampled in zip(ids[start:], mask[start:], strict=True) if sampled]


def _read(paths: Sequence[str]) -> list[Row]:
    try:
        return pa.concat_tables([pq.read_table(path, columns=_COLUMNS) for path in paths]).to_pylist()
    except (OSError, pa.ArrowException) as error:
        raise DataError(f"pairs cannot be read: {error}", ", ".join(paths), "run the step that made them again") from error
