"""No program of an episode outlives the process that plays it."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

_PLAYS = """
import json, sys
from clawpipe.play.environments.hosted import HostedEnvironment
from clawpipe.core.conversation.messages import Message, ToolCall

environment = HostedEnvironment("terminal", {}, 60.0)
episode = environment.start(environment.items("train", 1, 0)[0], 0)
command = json.dumps({"command": f"setsid nohup {sys.argv[1]} > /dev/null 2>&1 & {sys.argv[1]}"})
episode.respond([Message("assistant", "", (ToolCall("c", "bash", command),))])
"""


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("bwrap"), reason="no bubblewrap: apt-get install bubblewrap")
def test_a_killed_player_leaves_no_program():
    mark = f"sleep 8{os.getpid()}"  # no other process's
    player = subprocess.Popen([sys.executable, "-c", _PLAYS, mark], start_new_session=True)
    try:
        _wait_until(lambda: len(_running(mark)) >= 2)
    finally:
        player.send_signal(signal.SIGKILL)
        player.wait()
    _wait_until(lambda: not _running(mark))


def _running(mark: str) -> list[str]:
    """Return the processes whose whole command line is `mark`."""
    found = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = file.read_bytes().rstrip(b"\0").split(b"\0")
        except OSError:
            continue
        if b" ".join(words).decode(errors="replace") == mark:
            found.append(file.parent.name)
    return found


def _wait_until(holds, seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, "it takes too long"
        time.sleep(0.02)
