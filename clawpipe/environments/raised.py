"""What a user's own code raises about rows: counted, the first one in a line, and each with its traceback and its row in a log."""

from __future__ import annotations

import datetime
import json
import traceback
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

LOG = "verify.log"  # below the home's logs
_WRITTEN = 20  # exceptions a step that are written out: the next thousand say the same


class Raised:
    """Exceptions of one step.

    Args:
        log: file that they are appended to; None: they are counted alone.
    """

    def __init__(self, log: Path | None) -> None:
        self._log, self._count, self._first = log, 0, ""

    def add(self, error: Exception, row: Mapping[str, Any]) -> None:
        """Somebody's code raised `error` about `row`, of JSON."""
        self._count += 1
        self._first = self._first or told(error)
        if self._log and self._count <= _WRITTEN:
            self._log.parent.mkdir(parents=True, exist_ok=True)
            with self._log.open("a", encoding="utf-8", errors="backslashreplace") as file:
                file.write(_entry(error, row))

    def details(self) -> dict[str, str]:
        """For a step's details: nothing, or `raised`, one line."""
        rows = f"{self._count} rows" if self._count > 1 else "1 row"
        return {"raised": f"the environment raised on {rows}: {self._first}"} if self._count else {}


def told(error: BaseException) -> str:
    """`ZeroDivisionError: division by zero (my_env.py, line 31)`: class, message and where it was raised, in one line."""
    message = " ".join(str(error).split())
    return f"{type(error).__name__}{': ' if message else ''}{message}{_place(error.__traceback__)}"


def _place(trace: TracebackType | None) -> str:
    frames = traceback.extract_tb(trace)
    return f" ({Path(frames[-1].filename).name}, line {frames[-1].lineno})" if frames else ""


def _entry(error: Exception, row: Mapping[str, Any]) -> str:
    now = datetime.datetime.now().astimezone().isoformat(timespec="seconds")
    trace = "".join(traceback.format_exception(error))
    return f"{now} {told(error)}\n{trace}row: {json.dumps(row, ensure_ascii=False, default=str)}\n\n"
