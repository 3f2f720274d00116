"""The plugin for Hermes, in a stand-in for Hermes' plugin loader and, if $CLAWPIPE_HERMES_PYTHON has it, in Hermes itself."""

from __future__ import annotations

import copy
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from clawpipe.cli import main
from clawpipe.data.capture.records import Done

PLUGIN = Path("integrations/hermes").resolve()
KEY = "sk-a-test-key-of-the-gateway"
HERMES = os.environ.get("CLAWPIPE_HERMES_PYTHON", "")


class FakeHermes:
    """A fake of Hermes 0.19: its plugin context, the middleware before a request, and its hooks, by their documented arguments."""

    def __init__(self) -> None:
        self.middleware: dict = {}
        self.hooks: dict = {}

    def register_middleware(self, kind: str, callback) -> None:
        self.middleware[kind] = callback

    def register_hook(self, name: str, callback) -> None:
        self.hooks[name] = callback

    def request(self, session: str, url: str, text: str = "hi", platform: str = "cli", **more) -> dict:
        """What hermes_cli/middleware.py makes of a request: a copy, as the plugin changed it."""
        request = {"model": "agent", "messages": [{"role": "user", "content": text}], **more}
        ids = {"task_id": "t", "turn_id": "u", "api_request_id": "r", "api_call_count": 1, "model": "agent", "provider": "custom"}
        context = {**ids, "session_id": session, "base_url": url, "platform": platform, "api_mode": "chat_completions"}
        schema = {"telemetry_schema_version": "hermes.observer.v1", "middleware_schema_version": "hermes.middleware.v1"}
        given = copy.deepcopy(request)
        changed = self.middleware["llm_request"](request=given, original_request=request, **context, **schema)
        assert given == request  # nobody else's copy is changed
        return request if changed is None else changed["request"]

    def hook(self, name: str, **context) -> None:
        self.hooks[name](**context, telemetry_schema_version="hermes.observer.v1")


@pytest.fixture
def hermes(gateway, monkeypatch: pytest.MonkeyPatch) -> FakeHermes:
    """The plugin, loaded from its file as Hermes loads it, for the gateway of these tests."""
    monkeypatch.setenv("CLAWPIPE_GATEWAY_URL", f"{gateway.url}/v1/")
    monkeypatch.setenv("CLAWPIPE_API_KEY", KEY)
    spec = importlib.util.spec_from_file_location("hermes_plugins.clawpipe", PLUGIN / "__init__.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    context = FakeHermes()
    module.register(context)
    return context


def ask(hermes: FakeHermes, gateway, session: str, **more):
    """Hermes' request, as the OpenAI client sends it. Returns the turn that the gateway captured."""
    with gateway.client() as client:
        client.chat.completions.create(**hermes.request(session, f"{gateway.url}/v1", **more))
    return gateway.turns()[-1]


def ended(gateway) -> list[str]:
    return [record.session for record in gateway.records() if isinstance(record, Done)]


def test_a_request_carries_its_session_and_keeps_its_own_headers(hermes, gateway):
    turn = ask(hermes, gateway, "20261123_1", extra_headers={"x-mine": "kept"})
    assert (turn.session, turn.session_from, turn.turn_type, turn.parent) == ("20261123_1", "x-session-id", "main", None)
    sent = hermes.request("20261123_1", f"{gateway.url}/v1", extra_headers={"x-mine": "kept"})["extra_headers"]
    assert sent == {"x-mine": "kept", "X-Session-Id": "20261123_1"}  # the turn type is the gateway's to derive


def test_requests_to_others_carry_nothing(hermes, gateway):
    for url in ("https://openrouter.ai/api/v1", f"{gateway.url}/v1.example.com", f"{gateway.url}/v2", ""):
        assert "extra_headers" not in hermes.request("s", url)
    assert "extra_headers" not in hermes.request("", f"{gateway.url}/v1")


def test_cron_jobs_and_hermes_own_reviews_are_side_turns(hermes, gateway):
    assert ask(hermes, gateway, "s-cron", platform="cron").turn_type == "side"
    review = "Review the conversation above and update the skill library. Be thorough."
    assert ask(hermes, gateway, "s-user", text=review).turn_type == "side"
    found = []
    thread = threading.Thread(target=lambda: found.append(hermes.request("s-user", f"{gateway.url}/v1")), name="bg-review")
    thread.start()
    thread.join()
    assert found[0]["extra_headers"]["X-Turn-Type"] == "side"
    assert ask(hermes, gateway, "s-user").turn_type == "main"


def test_sub_agents_name_their_parent_and_end_with_their_task(hermes, gateway):
    hermes.hook("subagent_start", parent_session_id="boss", child_session_id="helper", parent_turn_id="t", child_goal="g")
    turn = ask(hermes, gateway, "helper", platform="subagent")
    assert (turn.session, turn.parent, turn.turn_type) == ("helper", "boss", "main")
    hermes.hook("subagent_stop", parent_session_id="boss", child_session_id="helper", child_status="completed")
    assert ended(gateway)[-1] == "helper"
    assert hermes.request("helper", f"{gateway.url}/v1")["extra_headers"] == {"X-Session-Id": "helper"}


def test_a_session_ends_when_hermes_says_so_and_only_then(hermes, gateway):
    ask(hermes, gateway, "s-long")
    before = ended(gateway)
    assert "on_session_end" not in hermes.hooks  # it fires after every message
    hermes.hook("on_session_finalize", session_id="s-elsewhere", platform="cli", reason="shutdown")  # has never been here
    hermes.hook("on_session_finalize", session_id=None, platform="cli", reason="shutdown")
    hermes.hook("on_session_finalize", session_id="s-long", platform="gateway", reason="shutdown")  # it goes on after the restart
    assert ended(gateway) == before
    hermes.hook("on_session_finalize", session_id="s-long", platform="telegram", reason="session_expired")
    assert ended(gateway) == [*before, "s-long"]


def test_hermes_goes_on_without_a_gateway_and_logs_no_key(hermes, gateway, monkeypatch, caplog):
    hermes.request("s-lost", f"{gateway.url}/v1")
    hermes.request("s-wrong", f"{gateway.url}/v1")
    monkeypatch.setenv("CLAWPIPE_API_KEY", "sk-wrong-key")
    hermes.hook("on_session_finalize", session_id="s-wrong", platform="cli", reason="shutdown")
    monkeypatch.setenv("CLAWPIPE_GATEWAY_URL", "http://127.0.0.1:1/v1")
    hermes.hook("on_session_finalize", session_id="s-lost", platform="cli", reason="shutdown")
    assert [record.message.rpartition(" ")[2] for record in caplog.records] == ["HTTPError", "URLError"]
    assert "sk-" not in caplog.text


def test_the_manifest_names_the_hooks_that_the_plugin_takes(hermes):
    import yaml

    manifest = yaml.safe_load((PLUGIN / "plugin.yaml").read_text())
    assert manifest["name"] == "clawpipe"
    assert set(manifest["hooks"]) == set(hermes.hooks)


def test_the_plugin_imports_only_python_and_hermes():
    import ast

    tree = ast.walk(ast.parse((PLUGIN / "__init__.py").read_text()))
    names = {alias.name for node in tree if isinstance(node, ast.Import) for alias in node.names}
    names |= {node.module for node in ast.walk(ast.parse((PLUGIN / "__init__.py").read_text())) if isinstance(node, ast.ImportFrom)}
    assert {name.split(".")[0] for name in names} - sys.stdlib_module_names == {"hermes_cli"}


@pytest.mark.slow
@pytest.mark.skipif(not HERMES, reason="$CLAWPIPE_HERMES_PYTHON names no Python with hermes-agent")
def test_a_turn_of_the_real_hermes_is_captured(gateway, tmp_path, monkeypatch, capsys):
    """`clawpipe connect` writes the config, the plugin is enabled, and one message is sent."""
    home = tmp_path / "hermes"
    shutil.copytree(PLUGIN, home / "plugins/clawpipe", ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setenv("HERMES_HOME", str(home))
    (home / "config.yaml").write_text("plugins:\n  enabled: [clawpipe]\n")
    monkeypatch.setenv("CLAWPIPE_API_KEY", KEY)
    with pytest.raises(SystemExit) as end:
        main.run(["connect", "hermes", "--url", f"{gateway.url}/v1", "--model", "agent", "--write", "--json"])
    assert end.value.code == 0, capsys.readouterr().out
    config = home / "config.yaml"
    config.write_text(config.read_text() + "  context_length: 131072\n")  # the fake engine does not say its window
    env = {"CLAWPIPE_GATEWAY_URL": f"{gateway.url}/v1", "HOME": str(tmp_path), "PATH": os.environ["PATH"], "HERMES_HOME": str(home)}
    before = len(gateway.turns())
    command = [str(Path(HERMES).with_name("hermes")), "chat", "-q", "three little words", "--quiet"]
    done = subprocess.run(command, env=env, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    turns = [turn for turn in gateway.turns()[before:] if turn.session_from == "x-session-id"]
    assert turns, json.dumps([turn.session_from for turn in gateway.turns()[before:]]) + done.stdout + done.stderr
    assert ended(gateway)[-1] == turns[0].session
