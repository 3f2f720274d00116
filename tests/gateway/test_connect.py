"""`clawpipe connect` against a real gateway: an agent's config changes only once a request has been answered."""

from __future__ import annotations

import json
from pathlib import Path

import httpx
import pytest
import yaml

from clawpipe.cli import main
from clawpipe.serve.agents.connection import check_connection

KEY = "sk-a-test-key-of-the-gateway"
BEFORE = '{\n  "gateway": {"port": 18789}\n}\n'


@pytest.fixture
def homes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Temporary homes of the agents; OpenClaw has a config already."""
    for name in ("OPENCLAW_CONFIG_PATH", "OPENCLAW_STATE_DIR", "OPENCLAW_PROFILE", "OPENCLAW_NIX_MODE", "HERMES_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("OPENCLAW_HOME", str(tmp_path))
    monkeypatch.setenv("HERMES_HOME", str(tmp_path / ".hermes"))
    monkeypatch.setenv("CLAWPIPE_API_KEY", KEY)
    (tmp_path / ".openclaw").mkdir()
    (tmp_path / ".openclaw/openclaw.json").write_text(BEFORE)
    return tmp_path


@pytest.fixture
def connect(capsys: pytest.CaptureFixture[str]):
    """connect(*words): what the command prints as JSON. No output ever holds the key."""

    def command(*words: str, code: int = 0):
        with pytest.raises(SystemExit) as end:
            main.run(["connect", *words, "--json"])
        told = capsys.readouterr()
        assert end.value.code == code, told.out
        assert KEY not in told.out + told.err
        return json.loads(told.out)

    return command


def test_write_asks_the_gateway_and_then_changes_the_config(gateway, homes, connect):
    before = len(gateway.turns())
    told = connect("openclaw", "--url", f"{gateway.url}/v1", "--write")
    file = homes / ".openclaw/openclaw.json"
    assert told["file"] == str(file)
    assert Path(told["backup"]).read_text() == BEFORE
    config = json.loads(file.read_text())
    provider = config["models"]["providers"]["clawpipe"]
    assert config["gateway"] == {"port": 18789}
    assert config["agents"]["defaults"]["model"]["primary"] == "clawpipe/agent"  # the only one that the engine lists
    assert len(gateway.turns()) == before  # the question is no turn of anybody

    headers = {"authorization": f"Bearer {provider['apiKey']}", "session_id": "sess-1:0"}  # as the agent then sends them
    body = {"model": "agent", "messages": [{"role": "user", "content": "hi"}]}
    answer = gateway.post("/v1/chat/completions", body, **headers)
    assert answer.headers["x-clawpipe-session"] == "sess-1"


def test_write_makes_hermes_config_once(gateway, homes, connect):
    url = f"{gateway.url}/v1"
    assert connect("hermes", "--url", url, "--model", "agent", "--write")["backup"] is None
    block = yaml.safe_load((homes / ".hermes/config.yaml").read_text())["model"]
    assert block == {"provider": "custom", "base_url": url, "default": "agent", "api_key": KEY}
    assert connect("hermes", "--url", url, "--model", "agent", "--write")["changed"] is False


@pytest.mark.parametrize("said", ["max_model_len", "context_length", "max_input_tokens"])
def test_a_window_is_read_by_every_servers_name(monkeypatch, said):
    """vLLM's, that of `clawpipe serve` and OpenRouter, Anthropic's; an adapter has its base's."""
    cards = [{"id": "base", said: 2048}, {"id": "adapter", "parent": "base"}, {"id": "silent"}]

    def answer(method: str, url: str, **_):
        return httpx.Response(200, json={"data": cards}, headers={"x-clawpipe-captured": "off"})

    monkeypatch.setattr(httpx, "request", answer)
    names = ("base", "adapter", "silent")
    assert [check_connection("http://gateway/v1", name, "key").context for name in names] == [2048, 2048, None]


def refused(homes: Path, told: dict, error: str) -> str:
    assert told["error"] == error
    assert (homes / ".openclaw/openclaw.json").read_text() == BEFORE
    assert [path.name for path in (homes / ".openclaw").iterdir()] == ["openclaw.json"]
    return told["what"] + told["fix"]


def test_nothing_is_written_when_the_request_fails(gateway, fake, homes, connect, monkeypatch):
    at = ["openclaw", "--write", "--url"]
    assert "clawpipe gateway" in refused(homes, connect(*at, "http://127.0.0.1:1/v1", code=75), "BusyError")
    assert "no gateway" in refused(homes, connect(*at, f"{fake.url}/v1", code=2), "ConfigError")  # the engine itself
    missing = connect(*at, f"{gateway.url}/v1", "--model", "missing", code=2)
    assert "no such model" in refused(homes, missing, "ConfigError")
    monkeypatch.setenv("CLAWPIPE_API_KEY", "sk-wrong")
    assert "clawpipe keys make" in refused(homes, connect(*at, f"{gateway.url}/v1", code=2), "ConfigError")
    monkeypatch.delenv("CLAWPIPE_API_KEY")
    assert "clawpipe keys make" in refused(homes, connect(*at, f"{gateway.url}/v1", code=2), "ConfigError")


def test_a_config_that_is_not_understood_is_left_alone(gateway, fake, homes, connect):
    file, asked = homes / ".openclaw/openclaw.json", len(fake.asked())
    file.write_text("// mine\n{}")
    assert connect("openclaw", "--url", f"{gateway.url}/v1", "--write", code=2)["where"] == str(file)
    assert file.read_text() == "// mine\n{}"
    assert len(fake.asked()) == asked


def test_printed_lines_hold_no_key_and_ask_nobody(homes, connect, capsys):
    for agent in ("openclaw", "hermes", "monoclaw", "openai"):
        assert "http://127.0.0.1:1/v1" in connect(agent, "--url", "http://127.0.0.1:1/v1", "--model", "mine")["lines"]
    assert connect("monoclaw", "--model", "a b")["lines"].splitlines() == [
        "monoclaw config set model.custom.endpoint http://127.0.0.1:8100/v1",
        "monoclaw config set model.custom.name 'a b'",
    ]
    assert connect("openai")["lines"] == "export OPENAI_BASE_URL=http://127.0.0.1:8100/v1\nexport OPENAI_API_KEY=YOUR-KEY\n"
    assert "connect openai" in connect("openai", "--write", code=2)["fix"]
    with pytest.raises(SystemExit):
        main.run(["connect", "hermes"])
    shown = capsys.readouterr().out
    assert shown.startswith(f"in {homes / '.hermes/config.yaml'}:\n\nmodel:\n")
    assert yaml.safe_load(shown.split("\n\n", 1)[1])["model"]["default"] == "MODEL"
