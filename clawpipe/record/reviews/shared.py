"""Decisions in a home that machines share: one file in their storage, of which each decision writes a version."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress

from clawpipe.core.store.home import Home
from clawpipe.core.store.home_file import ChangedError, HomeFile
from clawpipe.errors import ConfigError, DataError
from clawpipe.record.reviews.decisions import Decision, Decisions, require_seen

_FILE = "reviews/decisions.json"


class SharedDecisions(Decisions):
    """The decisions of all machines of a home."""

    def __init__(self, home: Home) -> None:
        self._home = home

    def every(self) -> list[Decision]:
        return _read(self._file())

    def add(self, decision: Decision, seen: int) -> Decision:
        def added(known: Sequence[Decision]) -> list[Decision]:
            require_seen([one for one in known if one.row_id == decision.row_id], seen)
            return [*known, dataclasses.replace(decision, number=known[-1].number + 1 if known else 1)]

        return self._change(added)[-1]

    def remove(self, rows: Iterable[str]) -> int:
        gone, before = set(rows), len(self.every())
        return before - len(self._change(lambda known: [one for one in known if one.row_id not in gone]))

    def close(self) -> None: ...

    def bring(self, own: Sequence[Decision], where: str) -> None:
        """Add what a machine has recorded before it shared the home.

        Raises:
            ConfigError: other decisions are shared already.
        """

        def brought(known: Sequence[Decision]) -> list[Decision]:
            if known and list(known[: len(own)]) != list(own):
                raise ConfigError("these decisions are not those of the shared home", where, "move the file away")
            return list(known) or list(own)

        self._change(brought)

    def _file(self) -> HomeFile:
        return HomeFile(self._home, _FILE)

    def _change(self, change: Callable[[Sequence[Decision]], list[Decision]]) -> list[Decision]:
        """Change the decisions as they stand, however often other machines change them first."""
        while True:
            file = self._file()
            changed = change(_read(file))
            with suppress(ChangedError):
                file.write(json.dumps([dataclasses.asdict(one) for one in changed]).encode())
                return changed


def _read(file: HomeFile) -> list[Decision]:
    try:
        return [Decision(**one) for one in json.loads(file.read() or b"[]")]
    except (ValueError, TypeError) as error:
        raise DataError(f"the decisions of people cannot be read: {error}", file.where, "restore the file") from error
