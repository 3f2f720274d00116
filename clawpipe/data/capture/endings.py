"""How a captured answer ended. What the engine said decides; how the connection ended only tells whether the engine said it all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from clawpipe.data.capture.records import Ending

Transport = Literal["marked", "lost", "left"]
"""How the bytes of an answer ended: with a mark (`[DONE]`, a last event, a finish reason, the end of a body), before it or with
half an event, or because the client left."""

_FAILURES = (
    *("error", "errored", "abort", "aborted", "cancel", "cancelled", "canceled", "fail", "failed", "failure"),
    *("interrupted", "preempted", "timeout", "network_error", "server_error", "internal_error"),
    *("insufficient_system_resource", "load", "unload"),  # DeepSeek; Ollama
)


def ending_of_answer(reasons: Sequence[str | None], transport: Transport, failed: bool) -> Ending:
    """Return how an answer ended: complete, cancelled by its client, or broken off by its engine.

    Args:
        reasons: the finish reason of each choice that began; None where none came.
        transport: how its bytes ended.
        failed: whether an error was among its events, in its body or in one of its choices.
    """
    if says_failure(reasons, failed):
        return "broken"
    if transport == "left":
        return "complete" if is_finished(reasons) else "cancelled"
    return "complete" if is_finished(reasons) and transport == "marked" else "broken"


def is_finished(reasons: Sequence[str | None]) -> bool:
    """Return whether each choice that began has its finish reason: then its stream may end without a mark, as some servers' do."""
    return bool(reasons) and all(reasons)


def says_failure(reasons: Sequence[str | None], failed: bool) -> bool:
    """Return whether an engine said that its answer failed; see `ending_of_answer`."""
    return failed or any(_is_failure(reason) for reason in reasons)


def _is_failure(reason: str | None) -> bool:
    return (reason or "").strip().lower() in _FAILURES
