"""The roof: what `--help` loads, how a failure is told, and the small commands."""

from __future__ import annotations

import errno
import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import typer

from clawpipe.cli import main
from clawpipe.core.config import NightConfig
from clawpipe.core.services.stack import project_directory
from clawpipe.core.store.home import Home
from clawpipe.errors import BusyError, ConfigError, DataError, TrainingError
from clawpipe.record.nights.files import run_dir
from clawpipe.record.nights.record import create_record
from clawpipe.record.nights.status import NightStatus, write_status

HEAVY = ("torch", "transformers", "mlflow", "prefect", "duckdb", "pyarrow")


def outcome(*words: str) -> int:
    with pytest.raises(SystemExit) as end:
        main.run(words)
    assert isinstance(end.value.code, int)
    return end.value.code


def commands(command: object, *words: str) -> list[list[str]]:
    """The words of every command and group."""
    below = getattr(command, "commands", {})
    return [list(words), *(path for name, child in below.items() for path in commands(child, *words, name))]


def test_help_loads_nothing_heavy():
    every = commands(typer.main.get_command(main.app))
    assert ["run"] in every
    assert ["config", "show"] in every
    script = f"""
import sys
from clawpipe.cli.main import run
for command in {every!r}:
    try:
        run([*command, "--help"])
    except SystemExit as end:
        assert end.code == 0, command
    loaded = [name for name in {HEAVY!r} if name in sys.modules]
    assert not loaded, (command, loaded)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


def test_a_night_whose_steps_are_cached_loads_no_torch():
    """Seconds of each command that looks up what is there."""
    script = "import flows.nightly, sys; sys.exit(any(name in sys.modules for name in ('torch', 'transformers', 'peft')))"
    assert subprocess.run([sys.executable, "-c", script], timeout=60, check=False).returncode == 0


@pytest.mark.parametrize(
    ("error", "code"), [(ConfigError, 2), (DataError, 65), (TrainingError, 70), (BusyError, 75), (ZeroDivisionError, 70)]
)
def test_errors_become_one_message_and_their_exit_code(
    error: type[Exception], code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(main, "app", app_that_raises(error("it broke")))
    assert outcome() == code
    told = capsys.readouterr()
    assert told.out == ""
    assert "it broke" in told.err
    assert ("Traceback" in told.err) == (error is ZeroDivisionError)

    assert outcome("--json") == code
    report = json.loads(capsys.readouterr().out)
    assert report["exit_code"] == code
    assert "it broke" in report["what"]


def test_debug_shows_where_an_error_came_from(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    monkeypatch.setattr(main, "app", app_that_raises(DataError("it broke")))
    monkeypatch.setenv("CLAWPIPE_DEBUG", "1")
    assert outcome() == 65
    assert "raise error" in capsys.readouterr().err


def test_interrupt_is_quiet(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    monkeypatch.setattr(main, "app", app_that_raises(KeyboardInterrupt()))
    assert outcome() == 130
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("words", [["nonsense"], ["config", "show"], ["run", "--no-such-option"], ["doctor", "surplus"]])
def test_wrong_usage(words: list[str], capsys: pytest.CaptureFixture[str]):
    assert outcome(*words) == 2
    told = capsys.readouterr().err
    assert told.startswith("clawpipe: ")
    assert "--help" in told
    assert outcome(*words, "--json") == 2
    assert json.loads(capsys.readouterr().out)["error"] == "ConfigError"


def test_the_module_is_the_command_line(tmp_path: Path):
    done = subprocess.run([sys.executable, "-m", "clawpipe", "--version"], capture_output=True, text=True, timeout=60, cwd=tmp_path)
    assert (done.returncode, done.stdout.strip()) == (0, main.__version__)


def test_a_plan_says_which_modules_an_adapter_can_be_put_on(home: Home, capsys: pytest.CaptureFixture[str]):
    assert outcome("plan", "-c", "configs/tiny.yaml", "-o", "train.lora.target_modules=[c_attn]", "--json") == 2
    told = json.loads(capsys.readouterr().out)
    assert (told["where"], "q_proj" in told["fix"]) == ("train.lora.target_modules", True)


def test_a_night_says_something_before_it_loads_anything(home: Home):
    """It was silent for seconds, and nobody knew whether it had started."""
    config = home.root.parent / "night.yaml"
    os.mkfifo(config)
    command = [sys.executable, "-m", "clawpipe", "run", "-c", str(config)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr
        assert process.stderr.readline() == f"reading {config}\n"
        config.write_text("{")  # until now it had nothing to read
        assert "not a readable YAML file" in process.stderr.read()
    assert process.returncode == 2


def test_a_sweep_without_optuna_names_the_install_line(
    home: Home, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setitem(sys.modules, "optuna", None)
    words = ["--config", "configs/demo.yaml", "--space", "configs/spaces/grpo.yaml", "--trials", "2"]
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert outcome("sweep", *words) == ConfigError.exit_code
    assert "pip install 'clawpipe[sweep]'" in capsys.readouterr().err
    assert not home.root.exists()


def test_version(capsys: pytest.CaptureFixture[str]):
    assert outcome("--version") == 0
    assert capsys.readouterr().out.strip() == main.__version__


def test_config_show_is_what_a_night_would_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    file = tmp_path / "night.yaml"
    file.write_text("seed: 3\n")
    assert outcome("config", "show", "-c", str(file), "-o", "train.method=sft", "--json") == 0
    shown = NightConfig.model_validate_json(capsys.readouterr().out)
    assert (shown.seed, shown.train.method) == (3, "sft")
    assert outcome("config", "show", "-c", str(file), "-o", "train.method=sft") == 0
    file.write_text(capsys.readouterr().out)
    assert outcome("config", "show", "-c", str(file), "--json") == 0
    assert NightConfig.model_validate_json(capsys.readouterr().out) == shown


def test_config_schema_knows_every_block(capsys: pytest.CaptureFixture[str]):
    assert outcome("config", "schema") == 0
    assert set(json.loads(capsys.readouterr().out)["properties"]) == set(NightConfig.model_fields)


def test_env_list_names_the_built_in_and_the_users_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    (tmp_path / "mine.py").write_text(
        'class Mine:\n    """Counts sheep."""\n    name = "sheep"\n    kind = "chat"\n'
        "    def items(self): ...\n    def start(self): ...\n    def verify(self): ...\n"
    )
    assert outcome("env", "list", "--dir", str(tmp_path), "--json") == 0
    found = {info["name"]: info for info in json.loads(capsys.readouterr().out)["environments"]}
    assert found["shop"]["reference"] == "shop"
    assert found["sheep"]["reference"] == f"{tmp_path / 'mine.py'}:Mine"
    assert found["sheep"]["summary"] == "Counts sheep."
    assert outcome("env", "list") == 0
    assert "shop" in capsys.readouterr().out


def test_env_list_shows_a_foreign_docstring_as_plain_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    (tmp_path / "theirs.py").write_text(
        'class Theirs:\n    """[bold]Free[/] [link=http://evil.test]\x1b]0;owned\x07\x1b[2Jmodels\u202e."""\n'
        '    name = "[blink]x\\x1b[31m"\n    kind = "chat"\n'
        "    def items(self): ...\n    def start(self): ...\n    def verify(self): ...\n"
    )
    assert outcome("env", "list", "--dir", str(tmp_path)) == 0
    printed = capsys.readouterr().out
    assert printed.replace("\n", "").isprintable()
    shown = "".join(printed.split())
    for text in ("[bold]Free[/]", "[link=http://evil.test]", "[blink]x"):
        assert text in shown


def test_an_error_quotes_a_file_without_terminal_escapes(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    file = tmp_path / "night.yaml"
    file.write_text('train: {"me\\e]0;owned\\athod\\u202e": sft}\n')
    assert outcome("plan", "-c", str(file)) == 2
    said = capsys.readouterr().err
    assert "owned" in said
    assert said.replace("\n", "").isprintable()


@pytest.mark.slow
def test_doctor_passes_here(home: Home, capsys: pytest.CaptureFixture[str]):
    code = outcome("doctor", "--json")
    report = json.loads(capsys.readouterr().out)
    assert {check["state"] for check in report["checks"]} <= {"ok", "warn"}, report
    assert (code, report["ok"]) == (0, True)
    assert not home.root.exists()  # it looks and does not touch


def app_that_raises(error: BaseException) -> typer.Typer:
    app = typer.Typer()

    @app.command()
    def go(json_output: bool = typer.Option(False, "--json")) -> None:
        raise error

    return app


@pytest.mark.parametrize("place", ["/proc/x", "{tmp}/file", "{tmp}/file/below", "{tmp}/round", "~nobody-at-all/x"])
@pytest.mark.parametrize("words", [["ingest", "{tmp}/file"], ["forget", "--session", "s"], ["status"], ["doctor"]])
def test_a_home_that_cannot_be_used_is_a_mistake_of_the_settings(
    words: list[str], place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    (tmp_path / "file").write_text("no directory")
    (tmp_path / "round").symlink_to(tmp_path / "round")
    monkeypatch.setenv("CLAWPIPE_HOME", place.format(tmp=tmp_path))
    assert outcome(*(word.format(tmp=tmp_path) for word in words), "--json") == 2
    told = json.loads(capsys.readouterr().out)
    assert (told["error"], told["where"]) == ("ConfigError", place.format(tmp=tmp_path))
    assert "CLAWPIPE_HOME" in told["fix"]
    assert (tmp_path / "file").read_text() == "no directory"


def test_looking_whether_a_home_can_be_used_makes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("CLAWPIPE_HOME", str(tmp_path / "not" / "yet"))
    assert Home.from_env().root == tmp_path / "not" / "yet"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.usefixtures("quick_children")
def test_doctor_checks_a_base_model(home: Home, capsys: pytest.CaptureFixture[str]):
    assert outcome("doctor", "--model", "random", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["ok"]
    assert [(check["name"], check["state"]) for check in found["checks"]] == [("engine", "ok"), ("trainer", "ok")]


@pytest.mark.slow
@pytest.mark.usefixtures("quick_children")
def test_plan_runs_the_check_of_the_model(home: Home, capsys: pytest.CaptureFixture[str]):
    assert outcome("plan", "--config", "configs/tiny.yaml", "--check-model", "--json") == 0
    found = json.loads(capsys.readouterr().out)["check"]
    assert [figures["part"] for figures in found] == ["engine", "trainer"]
    assert all(figures["largest"] < 1e-3 for figures in found)


def test_a_plan_loads_the_environment(tmp_path: Path, home: Home, capsys: pytest.CaptureFixture[str]):
    """A SyntaxError in it once showed hours later, when the night had something to score."""
    file = tmp_path / "mine.py"
    file.write_text("x = 1\nclass Mine(:\n")
    assert outcome("plan", "-c", "configs/tiny.yaml", "-o", f"environment.name={file}:Mine") == 2
    told = capsys.readouterr().err
    assert told.splitlines()[0] == f"clawpipe: {file}:2: it does not import: SyntaxError: invalid syntax"


def test_doctor_says_that_a_precision_does_not_exist(capsys: pytest.CaptureFixture[str]):
    assert outcome("doctor", "--model", "random", "--dtype", "float8") == 2
    assert "model.dtype" in capsys.readouterr().err


def two_nights(home: Home) -> tuple[str, str]:
    """An old night and a newer one."""
    old, new = (create_record(home, NightConfig(night=label), None).night for label in ("old", "new"))
    return old, new


def test_one_damaged_old_status_is_said_and_the_others_are_shown(home: Home, capsys: pytest.CaptureFixture[str]):
    old, new = two_nights(home)
    path = run_dir(home, old) / "status.json"
    path.write_bytes(b"{")
    assert outcome("status") == 0
    told = capsys.readouterr()
    assert f"night {new}" in told.out
    assert told.err.startswith(f"clawpipe: {path}: the file is damaged")
    assert "run the night again" in told.err
    assert outcome("status", "--night", old) == 65


@pytest.mark.parametrize("encoding", ["latin-1", "ascii", "utf-8"])
@pytest.mark.parametrize("words", [["status"], ["status", "--json"]])
def test_any_encoding_shows_a_night_whose_words_it_cannot_write(home: Home, encoding: str, words: list[str]):
    config = NightConfig(night="night")
    status = NightStatus(night="x", reasons=["caf\xe9 \u2192 \U0001f600"], verdict="HOLD")
    night = create_record(home, config, None).night
    write_status(status.model_copy(update={"night": night, "run_dir": str(run_dir(home, night))}))
    env = os.environ | {"PYTHONIOENCODING": encoding, "LC_ALL": "C", "PYTHONUTF8": "0"}
    done = subprocess.run([sys.executable, "-m", "clawpipe", *words], env=env, capture_output=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, b"")
    if "--json" in words:
        assert json.loads(done.stdout.decode(encoding))["reasons"] == status.reasons
    else:
        assert b"HOLD" in done.stdout


def test_a_closed_pipe_ends_no_command_with_a_traceback(home: Home):
    two_nights(home)
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run([sys.executable, "-m", "clawpipe", "status", "--json"], stdout=write, stderr=subprocess.PIPE, timeout=60)
    os.close(write)
    assert (done.returncode, done.stderr) == (0, b"")


def test_full_disks_and_read_only_homes_are_one_line_with_a_fix(
    tmp_path: Path, home: Home, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    (tmp_path / "chat.jsonl").touch()
    for number, code, remedy in ((errno.ENOSPC, 75, "make room"), (errno.EROFS, 2, "CLAWPIPE_HOME")):

        def refuse(path: object, *_: object, number: int = number, **__: object) -> None:
            raise OSError(number, os.strerror(number), str(path))

        with monkeypatch.context() as patch:
            patch.setattr(os, "open", refuse)  # locks and directories of the store
            assert outcome("ingest", str(tmp_path / "chat.jsonl")) == code
        told = capsys.readouterr().err.splitlines()
        assert len(told) == 2, told
        assert remedy in told[1]


@pytest.mark.parametrize("written", ["in the file", "on the command line"])
@pytest.mark.parametrize("command", ["run", "plan"])
def test_a_label_that_no_file_can_have_is_one_line_and_a_remedy(tmp_path: Path, command: str, written: str):
    """Where files are named in ASCII it was told as a mistake of the program, after the server had started."""
    settings = (project_directory() / "configs" / "tiny.yaml").read_text()
    config = tmp_path / "night.yaml"
    config.write_text(settings.replace("night: tiny", "night: tête") if written == "in the file" else settings)
    words = [command, "-c", str(config), *(["-o", "night=tête"] if written == "on the command line" else [])]
    env = os.environ | {"CLAWPIPE_HOME": str(tmp_path / "home"), "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    as_bytes = [word.encode() for word in (sys.executable, "-m", "clawpipe", *words)]  # who tests may be such a machine, too
    done = subprocess.run(as_bytes, env=env, capture_output=True, text=True, timeout=120)
    said = [line for line in done.stderr.splitlines() if not line.startswith("reading ")]
    assert done.returncode == 2
    assert [line[:15] for line in said] == ["clawpipe: night", "  -> set PYTHON"], said
    assert not (tmp_path / "home" / "prefect").exists()
