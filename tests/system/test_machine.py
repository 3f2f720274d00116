"""What the machine raises, as errors that a person can act on."""

from __future__ import annotations

import errno
import shutil
import sqlite3
from pathlib import Path
from types import SimpleNamespace

import httpx
import pytest

from clawpipe.core.system.machine import as_clawpipe_error, full_disk
from clawpipe.errors import BusyError, ClawpipeError, ConfigError, DataError
from clawpipe.play.environments.discovery import load_environment


def raised(cause: Exception) -> Exception:
    """An exception that a library raised because of another one."""
    try:
        try:
            raise cause
        except Exception as error:
            raise RuntimeError("a library is at a loss") from error
    except RuntimeError as error:
        return error


@pytest.mark.parametrize(
    ("cause", "kind", "what"),
    [
        (OSError(errno.ENOSPC, "No space left on device", "/home/x/file"), BusyError, "the disk is full"),
        (OSError(errno.EDQUOT, "Disk quota exceeded", "/home/x/file"), BusyError, "the disk is full"),
        (sqlite3.OperationalError("database or disk is full"), BusyError, "the disk is full"),
        (OSError(errno.EROFS, "Read-only file system", "/home/x/file"), ConfigError, "cannot be written"),
        (PermissionError(errno.EACCES, "Permission denied", "/home/x/file"), ConfigError, "may not read or write"),
        (sqlite3.OperationalError("attempt to write a readonly database"), ConfigError, "cannot be written"),
        (NotADirectoryError(errno.ENOTDIR, "Not a directory", "file/x"), ConfigError, "a file stands where a folder"),
        (FileExistsError(errno.EEXIST, "File exists", __file__), ConfigError, "a file stands where a folder"),
        (IsADirectoryError(errno.EISDIR, "Is a directory", "/tmp"), ConfigError, "a folder stands where a file"),
        (OSError(errno.EMFILE, "Too many open files"), BusyError, "too many files"),
        (MemoryError(), BusyError, "memory ran out"),
        (httpx.ConnectError("All connection attempts failed"), BusyError, "does not answer"),
        (ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused"), BusyError, "does not answer"),
        (DataError("it is damaged", fix="mend it"), DataError, "it is damaged"),
    ],
)
def test_it_is_told_apart_wherever_it_is_in_the_chain(cause: Exception, kind: type[ClawpipeError], what: str):
    for error in (cause, raised(cause)):
        told = as_clawpipe_error(error)
        assert isinstance(told, kind)
        assert what in told.what
        assert told.fix
        assert "\n" not in told.what


def test_a_home_that_is_nobodys_is_told_from_none(monkeypatch: pytest.MonkeyPatch):
    with pytest.raises(RuntimeError, match="home directory") as caught:
        Path("~nobody-of-this-name/file").expanduser()
    monkeypatch.setenv("HOME", "/home/ann")
    nobody = as_clawpipe_error(caught.value)
    monkeypatch.delenv("HOME")
    none = as_clawpipe_error(RuntimeError("Could not determine home directory."))
    assert isinstance(nobody, ConfigError)
    assert isinstance(none, ConfigError)
    assert "nobody on this machine" in nobody.what
    assert "HOME is not set" in none.what


def test_a_real_full_device_is_a_full_disk():
    file = Path("/dev/full").open("wb", buffering=0)  # noqa: SIM115 - it cannot be closed with nothing written
    with file, pytest.raises(OSError, match="No space left") as caught:
        file.write(b"x")
    told = as_clawpipe_error(caught.value)
    assert isinstance(told, BusyError)
    assert told.exit_code == 75


def test_a_disk_without_room_is_known_by_its_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    assert full_disk(tmp_path / "not" / "yet") is None
    monkeypatch.setattr(shutil, "disk_usage", lambda place: SimpleNamespace(free=1000))
    told = full_disk(tmp_path / "not" / "yet")
    assert told is not None
    assert (told.exit_code, told.where) == (75, str(tmp_path / "not" / "yet"))


def test_a_programmers_mistake_stays_one():
    assert as_clawpipe_error(raised(KeyError("x"))) is None
    assert as_clawpipe_error(FileNotFoundError(errno.ENOENT, "No such file", "x")) is None


def test_what_a_users_environment_raises_is_his_with_its_line(tmp_path: Path):
    file = tmp_path / "mine.py"
    file.write_text(
        "import json\nfrom clawpipe.play.environments.letters import LettersEnvironment\n"
        "class Mine(LettersEnvironment):\n    def items(self, split, count, seed):\n        return json.loads('{')\n"
    )
    with pytest.raises(ValueError, match="Expecting property name") as caught:
        load_environment(f"{file}:Mine", {}).items("train", 1, 0)
    told = as_clawpipe_error(caught.value)
    assert isinstance(told, ConfigError)
    assert told.where == f"{file}:5"
    assert "JSONDecodeError" in told.what


def test_a_missing_driver_is_told_with_its_extra():
    found = as_clawpipe_error(ModuleNotFoundError("No module named 'psycopg2'", name="psycopg2"))
    assert isinstance(found, ConfigError)
    assert found.fix == "pip install 'clawpipe[postgres]'"
    assert as_clawpipe_error(ModuleNotFoundError("No module named 'torch'", name="torch")) is None
