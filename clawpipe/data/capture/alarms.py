"""Raise an alarm when turns cannot be used as they should: their agent does not name sessions or types, or the engine no tokens."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal, Protocol

RECENT = 50  # turns that an alarm depends on
DERIVED = "derived"  # the source of an id or type that the client did not state
REFUSED = "the engine refuses to say tokens beside what was asked"  # why a turn has no tokens
Alarm = Literal["all_side", "unattributed", "tokens_refused"]
ALARMS: dict[Alarm, str] = {
    "all_side": f"the last {RECENT} turns are all side turns: nothing of them is trained on. Does the agent send X-Turn-Type?",
    "unattributed": f"none of the last {RECENT} turns names its session: sessions are guessed. Does the agent send X-Session-Id?",
    "tokens_refused": f"the engine answered one of the last {RECENT} turns only when it was not asked for tokens: it is text alone",
}


class Attributed(Protocol):
    """The properties of a turn that alarms depend on: its type, the source of its session id, and why it has no tokens."""

    @property
    def turn_type(self) -> str: ...
    @property
    def session_from(self) -> str: ...
    @property
    def no_tokens(self) -> str | None: ...


def alarms(recent: Sequence[Attributed]) -> Iterator[Alarm]:
    """Yield the alarms that apply to the last `RECENT` turns; two of them need as many turns."""
    last = recent[-RECENT:]
    if len(last) == RECENT and all(turn.turn_type == "side" for turn in last):
        yield "all_side"
    if len(last) == RECENT and all(turn.session_from == DERIVED for turn in last):
        yield "unattributed"
    if any(turn.no_tokens == REFUSED for turn in last):
        yield "tokens_refused"
