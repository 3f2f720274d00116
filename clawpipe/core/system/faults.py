"""Named points at which a test can kill the process, like a power cut.

`CLAWPIPE_KILL_AT="point"` or `"point/detail"` sends SIGKILL to this process there; `#N` after it means the N-th pass.
Several are separated by commas, because children inherit the variable: one may be meant for a child and the next
for its parent. Without the variable a point costs one dictionary lookup.
"""

from __future__ import annotations

import os
import signal
from collections import Counter

_passes: Counter[str] = Counter()


def kill_point(name: str, detail: str = "") -> None:
    """Kill this process here if the environment says so."""
    wanted = os.environ.get("CLAWPIPE_KILL_AT")
    if not wanted:
        return
    for entry in wanted.split(","):
        target, _, count = entry.partition("#")
        if target in (name, f"{name}/{detail}"):
            _passes[entry] += 1
            if _passes[entry] == int(count or 1):
                os.kill(os.getpid(), signal.SIGKILL)
