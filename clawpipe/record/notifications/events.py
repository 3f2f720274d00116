"""Events: what people are told of, as JSON and as text."""

from __future__ import annotations

import datetime
import hashlib
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from clawpipe.core.store.home import Home
from clawpipe.core.store.identity import home_id

SCHEMA_VERSION = "1.0"
Kind = Literal[
    "night.verdict",
    "night.failed",
    "night.crashed",
    "night.overdue",
    "nights.without_promotion",
    "signs.hacking",
    "evidence.low",
    "disk.low",
    "version.went_back",
    "capture.failing",
    "service.failing",
    "test",
]
TITLES: dict[Kind, str] = {
    "night.verdict": "verdict of a night",
    "night.failed": "a night failed",
    "night.crashed": "a night's process is gone",
    "night.overdue": "no night has ended for longer than its schedule says",
    "nights.without_promotion": "several nights in a row without a better model",
    "signs.hacking": "a reward may be gamed",
    "evidence.low": "held-out items run out",
    "disk.low": "the disk runs full",
    "version.went_back": "an older version is back in service",
    "capture.failing": "the gateway captures nothing that can be used",
    "service.failing": "a service keeps ending",
    "test": "a test message",
}


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class HomeName(_Frozen):
    id: str = Field(description="drawn once for each home")
    name: str = Field(description="the last part of its path")


class Event(_Frozen):
    """What webhooks get as JSON. Fields are only ever added within a major schema version."""

    schema_version: str = SCHEMA_VERSION
    id: str = Field(description="the same for each delivery of an event: whoever gets one twice can tell")
    time: str = Field(description="ISO 8601, UTC")
    home: HomeName
    kind: Kind
    text: str = Field(description="one line for people")
    model: str | None = Field(default=None, description="registered model")
    night: str | None = None
    verdict: str | None = Field(default=None, description="PROMOTE, HOLD or REJECT")
    evidence: str | None = Field(default=None, description="held-out figures behind the verdict, in one line")
    error: str | None = Field(default=None, description="the error that ended a night, in one line")
    report: str | None = Field(default=None, description="address of the night's report")

    @property
    def subject(self) -> str:
        return f"clawpipe {self.home.name}: {TITLES[self.kind]}"

    @property
    def body(self) -> str:
        """The event as lines of text."""
        facts = (("night", self.night), ("model", self.model), ("report", self.report))
        return "\n".join([self.text, *(f"{name}: {fact}" for name, fact in facts if fact)])


def event(home: Home, kind: Kind, text: str, *, about: str = "", **facts: str | None) -> Event:
    """Return an event of now.

    Args:
        about: what the event is about. Two events with the same home, kind, night, and `about` are one, and told once.
        facts: the event's other fields.
    """
    name = HomeName(id=home_id(home), name=home.root.name)
    same = "\n".join((name.id, kind, facts.get("night") or "", about))
    return Event.model_validate(
        {
            "id": hashlib.sha256(same.encode()).hexdigest()[:16],
            "time": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            "home": name,
            "kind": kind,
            "text": " ".join(text.split()),
            **{key: " ".join(fact.split()) if fact else None for key, fact in facts.items()},
        }
    )
