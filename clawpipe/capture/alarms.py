"""Signs that captured turns will teach nothing, or not what they should: the agent does not say whose they are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal, Protocol

RECENT = 50  # turns that an alarm looks at
DERIVED = "derived"  # in place of where something was found: nobody said it
Alarm = Literal["all_side", "unattributed"]
ALARMS: dict[Alarm, str] = {
    "all_side": f"the last {RECENT} turns are all side turns: nothing of them is trained on. Does the agent send X-Turn-Type?",
    "unattributed": f"none of the last {RECENT} turns names its session: sessions are guessed. Does the agent send X-Session-Id?",
}


class Attributed(Protocol):
    """What an alarm looks at: a turn's type, and where its session was found."""

    @property
    def turn_type(self) -> str: ...
    @property
    def session_from(self) -> str: ...


def alarms(recent: Sequence[Attributed]) -> Iterator[Alarm]:
    """Yield the alarms that the last turns give; none while there are fewer than `RECENT`."""
    last = recent[-RECENT:]
    if len(last) == RECENT and all(turn.turn_type == "side" for turn in last):
        yield "all_side"
    if len(last) == RECENT and all(turn.session_from == DERIVED for turn in last):
        yield "unattributed"
