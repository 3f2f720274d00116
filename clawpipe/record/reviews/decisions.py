"""Decisions of people about rows: a log, of which the last decision on a row counts."""

from __future__ import annotations

import datetime
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from clawpipe.errors import ConfigError
from clawpipe.record.reporting.wording import moment

Verdict = Literal["approved", "rejected", "edited", "open"]  # open: an earlier decision was taken back


class DecidedError(ConfigError):
    """Somebody has decided about the row since its reader saw it."""


@dataclass(frozen=True)
class Decision:
    """What a person decided about a row.

    Attributes:
        number: of the decision, counted in the home from 1.
        row_id: of a trajectory or a preference pair.
        by: who decided.
        at: when, in UTC.
        reason: why, in the person's words; "" for none.
        turn: of an edit, the turn that is replaced, numbered as scores number turns.
        text: of an edit, the answer in place of that turn's.
    """

    number: int
    row_id: str
    verdict: Verdict
    by: str
    at: str
    reason: str = ""
    turn: int | None = None
    text: str | None = None


class Decisions(ABC):
    """All decisions that were made in a home; threads and processes may share them.

    Every method raises DataError where the file is damaged.
    """

    @abstractmethod
    def every(self) -> list[Decision]:
        """Return all decisions, oldest first."""

    @abstractmethod
    def add(self, decision: Decision, seen: int) -> Decision:
        """Record a decision, and return it with its number; it is durable when this returns. Arguments and errors: see `decide`."""

    @abstractmethod
    def remove(self, rows: Iterable[str]) -> int:
        """Remove all decisions on rows, and return how many; no byte of them is left."""

    @abstractmethod
    def close(self) -> None: ...

    def last(self) -> dict[str, Decision]:
        """Return the last decision on each row, also one that takes another back, by the order of the rows' ids."""
        last = {one.row_id: one for one in self.every()}
        return {row: last[row] for row in sorted(last)}

    def history(self, row_id: str) -> list[Decision]:
        """Return all decisions on a row, oldest first."""
        return [one for one in self.every() if one.row_id == row_id]

    def decide(
        self,
        row_id: str,
        verdict: Verdict,
        by: str,
        *,
        seen: int,
        reason: str = "",
        turn: int | None = None,
        text: str | None = None,
    ) -> Decision:
        """Record a decision; it is durable when this returns.

        Args:
            seen: the number of the last decision on the row that the person knew; 0 for none.

        Raises:
            DecidedError: there is a later one.
            ConfigError: nobody is named.
        """
        if not by.strip():
            raise ConfigError("a decision needs the name of who decides", "by", "give one with --by")
        at = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        return self.add(Decision(0, row_id, verdict, by.strip(), at, reason.strip(), turn, text), seen)


def require_seen(known: Iterable[Decision], seen: int) -> None:
    """Check that the last decision on a row is the one that was seen.

    Args:
        known: the decisions on the row, oldest first.

    Raises:
        DecidedError: there is a later one.
    """
    *_, last = (None, *known)
    if last and last.number != seen:
        raise DecidedError(told(last), last.row_id, "nothing was recorded: look at it again")


def told(decision: Decision) -> str:
    """Return a decision in words."""
    verb = {"open": "taken back"}.get(decision.verdict, decision.verdict)
    return f"{verb} by {decision.by} at {moment(decision.at)}" + (f": {decision.reason}" if decision.reason else "")
