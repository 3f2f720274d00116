"""A judge in a process of its own, which dies at a named point.

A process, and no fork of the test's: its threads (of the fake judge, of libraries) may hold a lock that nobody opens in the fork.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

from clawpipe.play.judging.prm import make_prm
from clawpipe.play.judging.spending import spending_of


def judge_until_killed(point: str, rows: list[dict[str, Any]], **options: Any) -> int:
    """Let `prm` with these options judge the rows, as a part of the night "a night", and return its process's exit code."""
    command, given = [sys.executable, "-m", __name__], json.dumps([rows, options])
    return subprocess.run(command, input=given, text=True, env=os.environ | {"CLAWPIPE_KILL_AT": point}, check=False).returncode


def _judge() -> None:
    rows, options = json.load(sys.stdin)
    with spending_of("a night"):
        make_prm(**options).prepare(rows)


if __name__ == "__main__":
    _judge()
