"""Named points at which a test may end the process as a power cut would.

`CLAWPIPE_KILL_AT="point"` or `"point/detail"` sends SIGKILL to the own process there; with `#N` appended, at the N-th
pass. Several are separated by commas, because children inherit the variable: one may be meant for a child and the next
for its parent. Without the variable a point costs one dictionary look-up.
"""

from __future__ import annotations

import os
import signal
from collections import Counter

_passes: Counter[str] = Counter()


def point(name: str, detail: str = "") -> None:
    """Die here if the environment says so."""
    wanted = os.environ.get("CLAWPIPE_KILL_AT")
    if not wanted:
        return
    for one in wanted.split(","):
        target, _, count = one.partition("#")
        if target in (name, f"{name}/{detail}"):
            _passes[one] += 1
            if _passes[one] == int(count or 1):
                os.kill(os.getpid(), signal.SIGKILL)
