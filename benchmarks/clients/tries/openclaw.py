"""OpenClaw, connected by `clawpipe connect`, with clawpipe's plugin. `CLIENT` is the folder with its Node and its packages."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from tried import CALLS, KEY, MODEL, URL, run

PLUGIN = Path(__file__).parents[3] / "integrations/openclaw"
FOLDER = os.environ["CLIENT"]
SETUP = (
    ("plugins", "install", "--link", "--force", "--accept-capabilities", str(PLUGIN)),
    ("plugins", "enable", "clawpipe"),
    ("config", "set", "plugins.entries.clawpipe.hooks.allowConversationAccess", "true"),
)


def openclaw(env, *words):
    command = [f"{FOLDER}/bin/node", f"{FOLDER}/node_modules/openclaw/openclaw.mjs", *words]
    done = subprocess.run(command, env=env, cwd=env["HOME"], capture_output=True, text=True, timeout=580)
    assert done.returncode == 0, done.stdout[-300:] + done.stderr[-300:]
    return done.stdout


with tempfile.TemporaryDirectory() as directory:
    own = {"HOME": directory, "OPENCLAW_STATE_DIR": f"{directory}/state", "PATH": f"{FOLDER}/bin:{os.environ['PATH']}"}

    def said(session, prompt):
        """Return what OpenClaw prints for one message, once it is connected."""
        if not os.path.exists(own["OPENCLAW_STATE_DIR"]):
            connect = [sys.executable, "-m", "clawpipe", "connect", "openclaw", "--url", URL, "--model", MODEL, "--write"]
            subprocess.run(connect, env=os.environ | own | {"CLAWPIPE_API_KEY": KEY}, check=True, capture_output=True)
            for words in SETUP:
                openclaw(own, *words)
        return openclaw(own, "agent", "--local", "--agent", "main", "--session-id", session, "--message", prompt)

    def chat():
        assert "dry" in said("of-a-chat", "Say hello.") or not CALLS

    def tools():
        assert "42" in said("of-a-tool", 'call exec {"command": "echo $((6 * 7))"}') or not CALLS

    run({"chat": chat, "tools": tools})
