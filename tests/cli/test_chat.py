"""`clawpipe chat` as a person types it: a real server of a model of random weights."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from clawpipe.core.store.home import Home
from clawpipe.data.ingest.captured.captured_sessions import captured_sessions


@pytest.mark.slow
def test_what_is_said_and_judged_is_captured(tmp_path):
    home = Home(tmp_path / "home")
    command = [sys.executable, "-m", "clawpipe", "chat", "random", "--environment", "shop"]
    env = os.environ | {"CLAWPIPE_HOME": str(home.root)}
    typed = "hello\n/bad say hi\n/quit\n"
    done = subprocess.run(command, env=env, input=typed, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert "noted as bad, with what is right" in done.stdout
    [session] = captured_sessions(home)
    assert session.closed  # `clawpipe ingest` reads it at once, and not an hour later
    assert session.feedback == 1
    assert len(session.turns) == 1


def test_a_home_without_versions_names_a_base_model(tmp_path):
    command, env = [sys.executable, "-m", "clawpipe", "chat"], os.environ | {"CLAWPIPE_HOME": str(tmp_path / "home")}
    done = subprocess.run(command, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    assert done.returncode == 2
    assert "smollm2-135m-instruct" in done.stderr
    assert "Traceback" not in done.stderr
