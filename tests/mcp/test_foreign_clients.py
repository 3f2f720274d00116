"""Clients that nobody here wrote: Hermes plays a scripted model that trains by the tools, and the MCP inspector asks for them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import venv
from pathlib import Path

import pytest
import yaml

from clawpipe.cli import main
from clawpipe.core.store.home import Home
from clawpipe.record.runs.listing import list_runs
from clawpipe.start.mcp import training
from clawpipe.start.mcp.desk import Desk
from tests.mcp.scripted_agent import scripted_agent
from tests.mcp.test_choosing import TINY
from tests.mcp.test_training import FAST

pytestmark = pytest.mark.foreign
HERMES = os.environ.get("CLAWPIPE_HERMES_PYTHON", "")


@pytest.fixture
def night(tmp_path: Path) -> Path:
    """A tiny night as a file."""
    file, settings = tmp_path / "night.yaml", yaml.safe_load(TINY.read_text())
    for given in FAST:
        *path, last = given.partition("=")[0].split(".")
        block = settings
        for name in path:
            block = block.setdefault(name, {})
        block[last] = yaml.safe_load(given.partition("=")[2])
    file.write_text(yaml.safe_dump(settings))
    return file


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    monkeypatch.setenv("CLAWPIPE_HOME", str(tmp_path / "home"))
    return Home(tmp_path / "home")


@pytest.fixture
def hermes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Hermes' command, in an environment of its own."""
    if HERMES:
        return Path(HERMES).with_name("hermes")
    place = tmp_path_factory.mktemp("hermes")
    venv.create(place, with_pip=True)
    subprocess.run([place / "bin" / "pip", "install", "--quiet", "hermes-agent[mcp]==0.19.0"], check=True, timeout=900)
    return place / "bin" / "hermes"


def connected(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    with pytest.raises(SystemExit) as end:
        main.run(["connect", *words])
    told = capsys.readouterr()
    assert end.value.code == 0, told
    return told.out


def test_hermes_starts_watches_and_reads_a_training(hermes, home, night, tmp_path, monkeypatch, capsys):
    place = tmp_path / "hermes"
    place.mkdir()
    monkeypatch.setenv("HERMES_HOME", str(place))
    connected(capsys, "hermes", "--training-tools", "--config", str(night), "--write")
    config = yaml.safe_load((place / "config.yaml").read_text())
    config["mcp_servers"]["clawpipe"]["args"] += ["--status-minutes", "0"]
    with scripted_agent() as url:
        model = {"provider": "custom", "base_url": url, "default": "scripted", "api_key": "x", "context_length": 131072}
        (place / "config.yaml").write_text(yaml.safe_dump(config | {"model": model}))
        env = {"HOME": str(tmp_path), "PATH": os.environ["PATH"], "HERMES_HOME": str(place)}
        command = [str(hermes), "chat", "-q", "Train yourself on letters.", "--quiet"]
        done = subprocess.run(command, env=env, cwd=tmp_path, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    (run,) = list_runs(home, 10)
    found = training.results(Desk(home, night), training.OneRun(run_id=run.id))
    assert found["verdict"] in ("PROMOTE", "HOLD", "REJECT")
    assert f"The verdict is {found['verdict']}." in done.stdout
    assert (Path(found["weights"]) / "adapter_model.safetensors").exists()


@pytest.mark.skipif(shutil.which("npx") is None, reason="no npx")
def test_the_inspector_lists_and_calls_the_tools(home, night, tmp_path, capsys):
    (tmp_path / "mcp.json").write_text(connected(capsys, "json", "--training-tools", "--config", str(night)))
    command = ["npx", "--yes", "@modelcontextprotocol/inspector", "--cli", "--config", str(tmp_path / "mcp.json")]
    command += ["--server", "clawpipe", "--method"]
    env = os.environ | {"HOME": str(tmp_path), "npm_config_cache": str(tmp_path / "npm"), "MCP_INSPECTOR_SECRET_STORE": "memory"}

    def asked(*words: str) -> dict:
        done = subprocess.run([*command, *words], env=env, cwd=tmp_path, capture_output=True, text=True, timeout=600)
        assert done.returncode == 0, done.stdout + done.stderr
        return json.loads(done.stdout)

    assert len([tool for tool in asked("tools/list")["tools"] if tool["name"].startswith("rl_")]) == 10
    answer = asked("tools/call", "--tool-name", "rl_select_environment", "--tool-arg", "name=letters")
    assert json.loads(answer["content"][0]["text"])["environment"] == "letters"
