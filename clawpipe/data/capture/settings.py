"""What a home says about captured sessions: when one has ended, and which turns are main turns."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from clawpipe.core.store.home_settings import read_home_settings

FILE = "sessions.yaml"
IDLE_SECONDS = 3600.0  # after which a session has ended
UNASKED = re.compile(  # beginnings of users' messages that agents write when nobody asked for anything
    r"\s*(?:\[cron:|read heartbeat\.md|heartbeat(?: poll| check|$)|pre-compaction memory flush|\[(?:openclaw )?heartbeat"
    r"|review the conversation above and)",  # Hermes' reviews of memory and skills, under the conversation's own session
    re.IGNORECASE,
)
_Word = Annotated[str, Field(max_length=200, pattern=r"\S")]


class SessionSettings(BaseModel):
    """The settings of captured sessions in a home's `sessions.yaml`."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    idle_seconds: float = Field(default=IDLE_SECONDS, gt=0, description="a session without a turn for so long has ended")
    main_types: tuple[_Word, ...] = Field(default=("main",), description="turn types, as clients name them, of main turns")
    side_beginnings: tuple[_Word, ...] = Field(
        default=(), description="what the last user message of a side turn begins with, where the client names no turn type"
    )

    def is_main(self, turn_type: str) -> bool:
        """Whether a client's name of a turn type stands for main turns. Cases and spaces around it do not count."""
        return turn_type.strip().lower() in {one.strip().lower() for one in self.main_types}

    def is_side(self, text: str) -> bool:
        """Whether a user's message begins like one that no user wrote. Cases and spaces before it do not count."""
        return text.lstrip().lower().startswith(tuple(one.strip().lower() for one in self.side_beginnings))


PLAIN = SessionSettings()


def session_settings(root: Path) -> SessionSettings:
    """Return the settings of a home's directory. Raises ConfigError if its `sessions.yaml` is wrong."""
    return read_home_settings(root / FILE, SessionSettings, "docs/gateway.md")
