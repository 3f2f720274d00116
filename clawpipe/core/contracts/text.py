"""The columns of a trajectory that is text only."""

from __future__ import annotations

from collections.abc import Sequence

from clawpipe.core.basics.json_types import Row

EDITED = ":edited:"  # in the id of a row with a person's answer, between the id of the row that was edited and a digest
_NO_TOKENS: Row = {
    "token_ids": (),
    "loss_mask": (),
    "logprobs": (),
    "turns": (),
    "prompt_tokens": 0,
    "tokens": "none",
    "temperature": 0.0,
    "renderer_digest": None,
    "logprobs_kind": None,
}


def text_only(kinds: Sequence[str]) -> Row:
    """Return the columns of a row without tokens; `kinds` says of each assistant message whether it is main or side."""
    return _NO_TOKENS | {"kinds": kinds}
