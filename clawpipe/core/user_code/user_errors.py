"""Count the exceptions that a user's code raises about rows, and log each with its traceback and its row."""

from __future__ import annotations

import datetime
import json
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from clawpipe.core.user_code.extensions import in_one_line

LOG = "verify.log"  # below the home's logs
_WRITTEN = 20  # exceptions a step that are written out: the next thousand say the same


class UserErrors:
    """The exceptions that one step met.

    Args:
        log: file that they are appended to; None: they are only counted.
    """

    def __init__(self, log: Path | None) -> None:
        self._log, self._count, self._first = log, 0, ""

    def add(self, error: Exception, row: Mapping[str, Any]) -> None:
        """Record that a user's code raised `error` for `row`, which is plain JSON."""
        self._count += 1
        self._first = self._first or in_one_line(error)
        if self._log and self._count <= _WRITTEN:
            self._log.parent.mkdir(parents=True, exist_ok=True)
            with self._log.open("a", encoding="utf-8", errors="backslashreplace") as file:
                file.write(_entry(error, row))

    def details(self) -> dict[str, str]:
        """Return what a step reports: nothing, or one line under the key `raised`."""
        rows = f"{self._count} rows" if self._count > 1 else "1 row"
        return {"raised": f"the environment raised on {rows}: {self._first}"} if self._count else {}


def _entry(error: Exception, row: Mapping[str, Any]) -> str:
    now = datetime.datetime.now().astimezone().isoformat(timespec="seconds")
    trace = "".join(traceback.format_exception(error))
    return f"{now} {in_one_line(error)}\n{trace}row: {json.dumps(row, ensure_ascii=False, default=str)}\n\n"
