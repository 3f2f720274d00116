"""An agent's own config: where it is found, what changes in it, and what is left alone."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from clawpipe.errors import ConfigError
from clawpipe.serve.agents import hermes, openclaw
from clawpipe.serve.agents.connection import Connection, base_url
from clawpipe.serve.agents.known import FILES, check_writable, write

TO = Connection("http://127.0.0.1:8100/v1", "agent", "sk-secret", 131072)

HERMES = """\
# my agent
model: # which one
  provider: openrouter
  default: "some/model"   # good and cheap
  # a note about what follows

# which terminals
terminal:
  backend: local  # or docker
plugins: {enabled: [clawpipe]}
"""


def test_hermes_block_is_replaced_and_every_other_line_stays():
    after = hermes.edited(HERMES, TO)
    assert yaml.safe_load(after)["model"] == {
        "provider": "custom",
        "base_url": TO.url,
        "default": "agent",
        "api_key": "sk-secret",
        "context_length": 131072,
    }
    kept = [line for line in HERMES.splitlines() if not line.startswith(("model:", "  provider: openrouter", "  default:"))]
    assert [line for line in after.splitlines() if line in kept] == kept
    assert hermes.edited(after, TO) == after


@pytest.mark.parametrize(
    "old", ["", "# nothing yet\n", "terminal: {backend: local}", "model: some/model\nterminal: {}\n", "model:\nx: 1\n"]
)
def test_hermes_configs_of_other_forms_take_the_block(old: str):
    after = yaml.safe_load(hermes.edited(old, TO))
    assert after["model"]["base_url"] == TO.url
    assert {name: value for name, value in after.items() if name != "model"} == {
        name: value for name, value in (yaml.safe_load(old) or {}).items() if name != "model"
    }


@pytest.mark.parametrize(
    "foreign",
    [
        "- a\n- b\n",
        "model: [\n",
        "{model: x, terminal: y}",
        "model: &m {a: 1}\nother: *m\n",
        "model: a\nmodel: b\n",
        "a: 1\n---\nb: 2\n",
    ],
)
def test_hermes_configs_that_are_unsafe_to_change_are_refused(foreign: str):
    with pytest.raises(ConfigError, match="clawpipe connect hermes"):
        hermes.edited(foreign, TO)


LEAVES = st.none() | st.booleans() | st.integers() | st.text(max_size=8)
VALUES = st.recursive(LEAVES, lambda below: st.lists(below, max_size=3) | st.dictionaries(st.text(max_size=5), below, max_size=3))


@settings(deadline=None)
@given(st.dictionaries(st.text(max_size=6) | st.just("model"), VALUES, max_size=5), st.booleans())
def test_hermes_configs_keep_all_other_blocks(config: dict, flow: bool):
    old = yaml.safe_dump(config, default_flow_style=flow, allow_unicode=True, sort_keys=False)
    read = yaml.safe_load(old)  # not always what was written: PyYAML takes some control characters for line breaks
    try:
        after = yaml.safe_load(hermes.edited(old, TO))
    except ConfigError:
        assert flow or not config  # `{}` takes no line after it
        return
    assert after.pop("model")["base_url"] == TO.url
    assert after == {name: value for name, value in read.items() if name != "model"}


def test_openclaw_gets_a_provider_and_keeps_the_rest():
    old = {
        "gateway": {"port": 18789},
        "models": {"mode": "merge", "providers": {"other": {"baseUrl": "http://x"}}},
        "agents": {"defaults": {"model": {"primary": "other/m", "fallbacks": ["other/n"]}, "workspace": "~/w"}},
    }
    after = json.loads(openclaw.edited(json.dumps(old), TO))
    provider = after["models"]["providers"].pop("clawpipe")
    assert (provider["baseUrl"], provider["apiKey"], provider["api"]) == (TO.url, "sk-secret", "openai-completions")
    assert provider["models"][0]["compat"] == {"sendSessionAffinityHeaders": True}
    assert (provider["models"][0]["id"], provider["models"][0]["contextWindow"]) == ("agent", 131072)
    old["agents"]["defaults"]["model"]["primary"] = "clawpipe/agent"
    assert after == old


@pytest.mark.parametrize(
    "foreign",
    [
        "// mine\n{}",
        "{gateway: 1}",
        "[]",
        '{"models": []}',
        '{"models": {"$include": "./m.json5"}}',
        '{"agents": {"defaults": "x"}}',
    ],
)
def test_openclaw_configs_that_would_lose_something_are_refused(foreign: str):
    with pytest.raises(ConfigError, match="clawpipe connect openclaw"):
        openclaw.edited(foreign, TO)


def test_openclaw_file_is_found_as_openclaw_finds_it(tmp_path: Path):
    home = {"HOME": str(tmp_path)}
    assert openclaw.config_file(home) == tmp_path / ".openclaw/openclaw.json"
    (tmp_path / ".clawdbot").mkdir()
    (tmp_path / ".clawdbot/clawdbot.json").touch()
    assert openclaw.config_file(home) == tmp_path / ".clawdbot/clawdbot.json"
    assert openclaw.config_file(home | {"OPENCLAW_HOME": " undefined "}) == tmp_path / ".clawdbot/clawdbot.json"
    (tmp_path / ".openclaw").mkdir()
    assert openclaw.config_file(home) == tmp_path / ".openclaw/openclaw.json"
    assert openclaw.config_file(home | {"OPENCLAW_HOME": "/srv/claw"}) == Path("/srv/claw/.openclaw/openclaw.json")
    assert openclaw.config_file(home | {"OPENCLAW_STATE_DIR": "~/state"}) == tmp_path / "state/openclaw.json"
    chosen = home | {"OPENCLAW_STATE_DIR": "/state", "OPENCLAW_CONFIG_PATH": "/etc/claw.json"}
    assert openclaw.config_file(chosen) == Path("/etc/claw.json")
    for refused in ({"OPENCLAW_NIX_MODE": "1"}, {"OPENCLAW_PROFILE": "work"}):
        with pytest.raises(ConfigError):
            openclaw.config_file(home | refused)


def test_hermes_file_is_found_as_hermes_finds_it(tmp_path: Path):
    home = {"HOME": str(tmp_path)}
    assert hermes.config_file(home) == tmp_path / ".hermes/config.yaml"
    assert hermes.config_file(home | {"HERMES_HOME": "/srv/hermes"}) == Path("/srv/hermes/config.yaml")
    (tmp_path / ".hermes").mkdir()
    (tmp_path / ".hermes/active_profile").write_text("coder\n")
    assert hermes.config_file(home) == tmp_path / ".hermes/profiles/coder/config.yaml"
    assert hermes.config_file({"HERMES_HOME": str(tmp_path / ".hermes/profiles/x")}) == tmp_path / ".hermes/profiles/x/config.yaml"


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HERMES_HOME", str(tmp_path / "hermes"))
    return tmp_path / "hermes/config.yaml"


def test_a_new_file_is_readable_by_its_owner_only(file: Path):
    first = write("hermes", TO)
    assert (first.file, first.backup, first.changed) == (file, None, True)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    again = write("hermes", TO)
    assert not again.changed
    assert os.listdir(file.parent) == ["config.yaml"]


def test_a_link_stays_and_its_target_gets_a_backup(file: Path, tmp_path: Path):
    target = tmp_path / "dotfiles/hermes.yaml"
    target.parent.mkdir()
    target.write_text(HERMES)
    file.parent.mkdir()
    file.symlink_to(target)
    written = write("hermes", TO)
    assert file.is_symlink()
    assert yaml.safe_load(target.read_text())["model"]["provider"] == "custom"
    assert written.backup.read_text() == HERMES
    assert written.backup.parent == target.parent
    assert stat.S_IMODE(written.backup.stat().st_mode) & 0o077 == 0


@pytest.mark.parametrize("content", [b"\xff\xfe\x00", b"model: [", b"- list"])
def test_a_file_that_is_not_understood_is_named_and_left_alone(content: bytes, file: Path):
    file.parent.mkdir()
    file.write_bytes(content)
    for refused in (lambda: check_writable("hermes"), lambda: write("hermes", TO)):
        with pytest.raises(ConfigError) as told:
            refused()
        assert told.value.where == str(file)
    assert file.read_bytes() == content
    assert os.listdir(file.parent) == ["config.yaml"]


def test_a_directory_in_the_files_place_is_named(file: Path):
    file.mkdir(parents=True)
    with pytest.raises(ConfigError, match="cannot be read"):
        check_writable("hermes")


@pytest.mark.parametrize(
    "url", ["127.0.0.1:8100", "ftp://x/v1", "http://key@x/v1", "http://x:99999/v1", "http://x/v1?key=1", "http://x/v1 y", ""]
)
def test_what_is_no_address_of_a_gateway_is_refused(url: str):
    with pytest.raises(ConfigError, match="base URL"):
        base_url(url)
    assert base_url("http://127.0.0.1:8100/v1/") == TO.url


def test_every_config_file_can_be_printed():
    assert all("http://127.0.0.1:8100/v1" in file.edited("", TO) for file in FILES.values())
