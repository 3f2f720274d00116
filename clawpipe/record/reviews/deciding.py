"""Decide about a row of the queue: approve, reject or edit it, or take a decision back."""

from __future__ import annotations

from clawpipe.core.store.home import Home
from clawpipe.data.privacy.redact import redactor
from clawpipe.data.privacy.rules import rules_of
from clawpipe.errors import ConfigError
from clawpipe.record.reviews.decisions import Decision, Verdict
from clawpipe.record.reviews.edits import place_of
from clawpipe.record.reviews.queue import Entry, Queue, talk_of


def decide(home: Home, queue: Queue, entry: Entry, verdict: Verdict, by: str, *, seen: int, reason: str = "") -> Decision:
    """Record a decision about a row; see `Decisions.decide`. Secrets in the reason are replaced."""
    return queue.decisions.decide(entry.row_id, verdict, by, seen=seen, reason=_clean(home, reason))


def edit(
    home: Home, queue: Queue, entry: Entry, text: str, by: str, *, seen: int, turn: int | None = None, reason: str = ""
) -> Decision:
    """Put a person's answer in place of a turn's, the last one in words unless told otherwise. Secrets in it are replaced.

    Raises:
        ConfigError: the row is a pair, the turn is not there or calls a tool, or the text says nothing else.
        DecidedError: somebody has decided about the row meanwhile.
    """
    turns = editable(queue, entry)
    if not turns:
        raise ConfigError("it has no answer in words that could be edited", entry.row_id, "approve or reject it")
    number = max(turns) if turn is None else turn
    if number not in turns:
        raise ConfigError(f"turn {number} is no answer in words", entry.row_id, f"one of {', '.join(map(str, sorted(turns)))}")
    clean = _clean(home, _lines(text))
    if not clean or clean == _lines(turns[number]).strip():
        raise ConfigError("the text is " + ("empty" if not clean else "what stands there"), entry.row_id, "approve or reject it")
    return queue.decisions.decide(entry.row_id, "edited", by, seen=seen, reason=_clean(home, reason), turn=number, text=clean)


def editable(queue: Queue, entry: Entry) -> dict[int, str]:
    """Return the answers that can be edited, by turn: those in words."""
    row = queue.text(entry)
    return {turn.turn: turn.reply.content for turn in talk_of(entry, row) if place_of(row, turn.turn) is not None}


def _lines(text: str) -> str:
    """Return a text as models write lines; browsers end each line of a form with a carriage return as well."""
    return text.replace("\r\n", "\n")


def _clean(home: Home, text: str) -> str:
    if not text.strip():
        return ""
    with redactor(1, rules_of(home.root)) as redact:
        [clean] = redact.texts([text.strip()]).texts
    return clean
