"""Hermes, connected by `clawpipe connect`, with clawpipe's plugin. `CLIENT` is the folder of its environment."""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tried import CALLS, KEY, MODEL, URL, run

PLUGIN = Path(__file__).parents[3] / "integrations/hermes"
PROGRAM = Path(os.environ["CLIENT"]) / "bin/hermes"


def said(prompt):
    """Return what Hermes prints for one message, from a home of its own."""
    with tempfile.TemporaryDirectory() as directory:
        home = Path(directory, "hermes")
        shutil.copytree(PLUGIN, home / "plugins/clawpipe", ignore=shutil.ignore_patterns("__pycache__"))
        config = home / "config.yaml"
        config.write_text("plugins:\n  enabled: [clawpipe]\n")
        env = os.environ | {"HERMES_HOME": str(home), "HOME": directory, "CLAWPIPE_API_KEY": KEY, "CLAWPIPE_GATEWAY_URL": URL}
        connect = [sys.executable, "-m", "clawpipe", "connect", "hermes", "--url", URL, "--model", MODEL, "--write"]
        subprocess.run(connect, env=env, check=True, capture_output=True)
        command = [str(PROGRAM), "chat", "-q", prompt, "--quiet", "--yolo"]
        done = subprocess.run(command, env=env, cwd=directory, capture_output=True, text=True, timeout=400)
    assert done.returncode == 0, done.stdout[-300:] + done.stderr[-300:]
    return done.stdout


def chat():
    assert "dry" in said("Say hello.") or not CALLS


def tools():
    assert "42" in said('call terminal {"command": "echo $((6 * 7))"}') or not CALLS


run({"chat": chat, "tools": tools})
