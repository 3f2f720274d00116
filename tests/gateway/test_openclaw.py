"""The plugin for OpenClaw: its own tests, its requests at a real gateway and, if $CLAWPIPE_OPENCLAW has it, OpenClaw itself."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from clawpipe.cli import main
from clawpipe.data.capture.records import Done

PLUGIN = Path("integrations/openclaw").resolve()
NODE = shutil.which("node")
OPENCLAW = os.environ.get("CLAWPIPE_OPENCLAW", "")
pytestmark = pytest.mark.skipif(not NODE, reason="Node.js is not installed")

# A fake of OpenClaw's plugin API that sends what the plugin makes of a request, and then ends the session.
SCRIPT = """
import plugin from "PLUGIN/index.js";
const [url, key] = process.argv.slice(1), hooks = {};
let provider;
const config = { models: { providers: { clawpipe: { baseUrl: url, apiKey: key } } } };
plugin.register({ config, registerProvider: (given) => (provider = given), on: (name, call) => (hooks[name] = call) });
const streamFn = (model, context, { headers }) =>
  fetch(`${url}/chat/completions`, {
    method: "POST", headers: { ...headers, authorization: `Bearer ${key}`, "content-type": "application/json" },
    body: JSON.stringify({ model: "agent", messages: [{ role: "user", content: "hi" }] }),
  });
hooks.before_prompt_build({}, { sessionId: "claw-1", trigger: "cron" });
const reply = await provider.wrapStreamFn({ streamFn })({}, {}, { sessionId: "claw-1" });
await reply.text();
await hooks.session_end({ sessionId: "claw-1", reason: "reset" });
"""


def test_the_plugins_own_tests_pass():
    done = subprocess.run([NODE, "--test", "--test-reporter=tap"], cwd=PLUGIN, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "# pass 7" in done.stdout, done.stdout


def test_the_gateway_takes_what_the_plugin_sends(gateway):
    script = SCRIPT.replace("PLUGIN", PLUGIN.as_uri())
    command = [NODE, "--input-type=module", "--eval", script, f"{gateway.url}/v1", "sk-a-test-key-of-the-gateway"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    turn = gateway.turns()[-1]
    assert (turn.session, turn.session_from, turn.turn_type, turn.turn_type_from) == (
        "claw-1",
        "x-session-id",
        "side",
        "x-turn-type",
    )
    assert [record.session for record in gateway.records() if isinstance(record, Done)] == ["claw-1"]


def test_the_manifest_has_what_openclaw_asks_for():
    manifest = json.loads((PLUGIN / "openclaw.plugin.json").read_text())
    assert manifest["configSchema"] == {"type": "object", "additionalProperties": False}
    entries = json.loads((PLUGIN / "package.json").read_text())["openclaw"]["extensions"]
    assert all((PLUGIN / entry).is_file() for entry in entries)


@pytest.mark.slow
@pytest.mark.skipif(not OPENCLAW, reason="$CLAWPIPE_OPENCLAW is no folder with bin/node and node_modules/openclaw")
def test_a_turn_of_openclaw_itself_is_captured(gateway, tmp_path, monkeypatch, capsys):
    """`clawpipe connect` writes the config, the plugin is linked and granted its hooks, and one message is sent."""
    monkeypatch.setenv("OPENCLAW_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("CLAWPIPE_API_KEY", "sk-a-test-key-of-the-gateway")
    with pytest.raises(SystemExit) as end:
        main.run(["connect", "openclaw", "--url", f"{gateway.url}/v1", "--write"])
    assert end.value.code == 0, capsys.readouterr().err
    env = {"HOME": str(tmp_path), "OPENCLAW_STATE_DIR": str(tmp_path / "state"), "PATH": f"{OPENCLAW}/bin:{os.environ['PATH']}"}

    def openclaw(*words: str) -> None:
        command = [f"{OPENCLAW}/bin/node", f"{OPENCLAW}/node_modules/openclaw/openclaw.mjs", *words]
        done = subprocess.run(command, env=env, cwd=tmp_path, capture_output=True, text=True, timeout=580)
        assert done.returncode == 0, done.stdout + done.stderr

    openclaw("plugins", "install", "--link", "--force", "--accept-capabilities", str(PLUGIN))
    openclaw("plugins", "enable", "clawpipe")
    openclaw("config", "set", "plugins.entries.clawpipe.hooks.allowConversationAccess", "true")
    openclaw("agent", "--local", "--agent", "main", "--session-id", "sess-real", "--message", "three little words")
    turns = [turn for turn in gateway.turns() if turn.session == "sess-real"]
    assert [(turn.session_from, turn.turn_type, turn.turn_type_from) for turn in turns][:1] == [
        ("x-session-id", "main", "x-turn-type")
    ]
