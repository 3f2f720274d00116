"""How an attempt ended, and whether its last answer is whole. `data/curation/sql/measures.sql` says the same of rows in SQL."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from clawpipe.core.basics.json_types import Row
from clawpipe.core.conversation.messages import Message

Ending = Literal["completed", "partial", "truncated", "aborted"]
CUT: tuple[Ending, ...] = ("truncated", "aborted")
COLUMNS = ("source", "status", "finish_reason")  # of a row of `trajectories`, which the functions read

_WORDS: dict[Ending, str] = {
    "completed": """
        stop stopped complete completed done finish finished success succeeded ok end end_turn eos eos_token stop_sequence stop_str
        stop_token tool_calls tool_call tool_use tooluse function_call function_calls""",
    "truncated": """
        length max_tokens max_output_tokens max_completion_tokens max_new_tokens max_length token_limit time_limit model_length
        context_length model_context_window_exceeded truncated incomplete pause_turn""",
}
_ENDINGS: dict[str, Ending] = {word: ending for ending, words in _WORDS.items() for word in words.split()}


def ending_of_reason(reason: str) -> Ending | None:
    """Return the ending for the word with which an engine or an API ended an answer; None for an empty word.

    A word that is not known counts as aborted, like `content_filter`, `safety` or `error`: an answer teaches if its source says
    that it is whole.
    """
    word = reason.strip().lower().replace("-", "_").replace(" ", "_")
    return _ENDINGS.get(word, "aborted") if word else None


def ending_of(row: Row) -> Ending:
    """Return the ending of a row: what its source says, else truncated if a limit cut the episode off."""
    return row.get("status") or ("completed" if (row.get("finish_reason") or "stop") == "stop" else "truncated")


def is_cut_short(row: Row) -> bool:
    """Return whether others recorded the row, and its attempt was truncated or aborted. Own rollouts keep group and reward."""
    return row.get("source") != "rollout" and ending_of(row) in CUT


def lacks_end(row: Row, messages: Sequence[Message]) -> bool:
    """Return whether a row ends with an answer that was cut off, so that no end marker belongs after it."""
    return messages[-1].role == "assistant" and (is_cut_short(row) or row.get("finish_reason") == "length")
