"""The columns of a row of `trajectories` that is text: it has no tokens, whatever the record of its text holds."""

from __future__ import annotations

from collections.abc import Sequence

from clawpipe.json_types import Row

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
    """Return the columns of a row without tokens."""
    return _NO_TOKENS | {"kinds": kinds}
