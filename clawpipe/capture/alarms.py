"""Raise an alarm when an agent does not name the sessions or the types of its turns, so that they cannot be used in training."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal, Protocol

RECENT = 50  # turns that an alarm depends on
DERIVED = "derived"  # the source of an id or type that the client did not state
Alarm = Literal["all_side", "unattributed"]
ALARMS: dict[Alarm, str] = {
    "all_side": f"the last {RECENT} turns are all side turns: nothing of them is trained on. Does the agent send X-Turn-Type?",
    "unattributed": f"none of the last {RECENT} turns names its session: sessions are guessed. Does the agent send X-Session-Id?",
}


class Attributed(Protocol):
    """The properties of a turn that alarms depend on: its type, and the source of its session id."""

    @property
    def turn_type(self) -> str: ...
    @property
    def session_from(self) -> str: ...


def alarms(recent: Sequence[Attributed]) -> Iterator[Alarm]:
    """Yield the alarms that apply to the last `RECENT` turns; none while there are fewer turns."""
    last = recent[-RECENT:]
    if len(last) == RECENT and all(turn.turn_type == "side" for turn in last):
        yield "all_side"
    if len(last) == RECENT and all(turn.session_from == DERIVED for turn in last):
        yield "unattributed"
