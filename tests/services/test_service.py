"""Children with a log, a health URL and an end."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from clawpipe.core.services.service import answers, rotate, running
from clawpipe.core.system.ports import free_port, is_free
from clawpipe.errors import BusyError, ClawpipeError, ConfigError, DataError


def serve(port: int) -> list[str]:
    return [sys.executable, "-m", "http.server", str(port), "--bind", "127.0.0.1"]


def test_runs_until_the_block_ends_however_it_ends(tmp_path: Path):
    port = free_port()
    with pytest.raises(ZeroDivisionError), running("files", serve(port), tmp_path / "logs" / "files.log", {}) as service:  # noqa: PT012
        service.wait_healthy(f"http://127.0.0.1:{port}/", timeout=30)
        assert service.ended() is None
        assert not is_free(port)
        raise ZeroDivisionError
    assert service.ended() is not None
    assert is_free(port)
    assert not answers(f"http://127.0.0.1:{port}/")


def test_a_free_port_is_none_that_outgoing_connections_take():
    assert all(1024 < free_port() < 32_768 for _ in range(100))


def test_environment_is_ours_and_what_is_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("INHERITED", "a")
    show = [sys.executable, "-c", "import os; print(os.environ['INHERITED'], os.environ['GIVEN'])"]
    with running("show", show, tmp_path / "log", {"GIVEN": "b"}) as service:
        service.process.wait()
    assert service.tail() == "a b"


def test_a_large_log_begins_anew_while_its_writer_goes_on(tmp_path: Path):
    log, small = tmp_path / "it.log", tmp_path / "small.log"
    small.write_text("few")
    with log.open("ab") as sink:
        writer = subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=sink, bufsize=0)
    assert writer.stdin is not None
    for round_ in (b"1", b"2", b"3"):
        writer.stdin.write(round_ * 50 + b"\n")
        while not log.stat().st_size:
            assert writer.poll() is None
        rotate(tmp_path, limit=50)
        assert log.stat().st_size == 0
    writer.stdin.write(b"end\n")
    writer.stdin.close()
    writer.wait()
    assert log.read_bytes() == b"end\n"  # no hole before it
    assert (tmp_path / "it.log.1").read_bytes() == b"3" * 50 + b"\n"
    assert {path.name for path in tmp_path.iterdir()} == {"it.log", "it.log.1", "small.log"}


def test_early_end_shows_code_and_log(tmp_path: Path):
    complain = [sys.executable, "-c", "print('cannot bind'); raise SystemExit(3)"]
    with running("it", complain, tmp_path / "log", {}) as service, pytest.raises(BusyError, match=r"code 3(.|\n)*cannot bind"):
        service.wait_healthy(f"http://127.0.0.1:{free_port()}/", timeout=30)


@pytest.mark.parametrize(
    ("said", "fix"),
    [
        ("TypeError: Body() got an unexpected keyword argument 'min_items'", "fastapi<"),
        ("MlflowException: Failed to find app 'clawpipe'. Available apps: ['basic-auth']", "pip install -e ."),
    ],
)
def test_an_environment_that_does_not_fit_is_named(tmp_path: Path, said: str, fix: str):
    fail = [sys.executable, "-c", f"raise SystemExit({said!r})"]
    with running("it", fail, tmp_path / "log", {}) as service, pytest.raises(BusyError) as failure:
        service.wait_healthy(f"http://127.0.0.1:{free_port()}/", timeout=30)
    assert fix in failure.value.fix


def test_silence_is_not_waited_for_for_ever(tmp_path: Path):
    mute = [sys.executable, "-c", "import signal; signal.pause()"]
    with running("mute", mute, tmp_path / "log", {}) as service, pytest.raises(BusyError, match="did not answer"):
        service.wait_healthy(f"http://127.0.0.1:{free_port()}/", timeout=0.2)
    assert service.process.returncode == -signal.SIGTERM


def test_log_is_appended_to(tmp_path: Path):
    for word in ("one", "two"):
        with running("echo", [sys.executable, "-c", f"print({word!r})"], tmp_path / "log", {}) as service:
            service.process.wait()
    assert (tmp_path / "log").read_text().split() == ["one", "two"]


def test_nothing_outlives_a_killed_owner(tmp_path: Path):
    lock, up = tmp_path / "lock", tmp_path / "up"
    os.mkfifo(up)
    child = f"import fcntl, signal; f = open({str(lock)!r}, 'w'); fcntl.flock(f, 2); open({str(up)!r}, 'w').close(); signal.pause()"
    owner = (
        "import signal, sys; from pathlib import Path; from clawpipe.core.services.service import running\n"
        f"with running('child', [sys.executable, '-c', {child!r}], Path({str(tmp_path / 'log')!r}), {{}}): signal.pause()"
    )
    process = subprocess.Popen([sys.executable, "-c", owner])
    up.open().close()  # returns when the child holds the lock
    with lock.open() as file, pytest.raises(BlockingIOError):
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    process.kill()
    process.wait()
    with lock.open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # returns when the child is gone


@pytest.mark.parametrize(("code", "kind"), [(2, ConfigError), (65, DataError), (75, BusyError)])
def test_a_command_that_ends_says_its_own_error(tmp_path: Path, code: int, kind: type[ClawpipeError]):
    """A misspelt model was `try again`, with the errors of others who had written into the log before."""
    (tmp_path / "log").write_text("clawpipe: an error of another command\n")
    fail = f"import sys; print('clawpipe: m@9: no such version\\n  -> name another', file=sys.stderr); sys.exit({code})"
    with running("it", [sys.executable, "-c", fail], tmp_path / "log", {}) as service, pytest.raises(kind) as failure:
        service.wait_healthy(f"http://127.0.0.1:{free_port()}/", timeout=30)
    assert "no such version" in failure.value.what
    assert "another command" not in str(failure.value)
    assert code == 75 or (failure.value.what, failure.value.fix) == ("m@9: no such version", "name another")
