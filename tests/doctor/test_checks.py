"""The doctor's checks on incomplete machines."""

from __future__ import annotations

import os
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

import pytest

from clawpipe.core.store.home import Home
from clawpipe.core.system.ports import free_port
from clawpipe.start.doctor import checks
from tests.permissions import open_to_others


def test_this_environment_is_as_pinned(home: Home):
    assert checks.check_python(home).state == "ok"
    assert checks.check_packages(home).state == "ok", checks.check_packages(home).found


def test_wrong_and_missing_packages_are_named(home: Home, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(checks.importlib.metadata, "requires", lambda name: ["pytest<1", "no-such-dist>=2", "pyyaml>=1"])
    found = checks.check_packages(home)
    assert found.state == "fail"
    assert "is not <1" in found.found
    assert "no-such-dist is not installed" in found.found
    assert "pyyaml" not in found.found


@pytest.mark.parametrize(("gib", "state"), [(100, "ok"), (4.9, "warn"), (0.9, "fail")])
def test_disk(home: Home, monkeypatch: pytest.MonkeyPatch, gib: float, state: str):
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=int(gib * 2**30)))
    assert checks.check_disk(home).state == state


def test_a_damaged_history_of_prefects_is_said_with_the_remedy(home: Home):
    assert checks.check_history(home).state == "ok"
    home.prefect.mkdir(parents=True)
    database = home.prefect / "prefect.db"
    with closing(sqlite3.connect(database)) as connection:
        connection.execute("create table flow_run (id integer)")
    assert checks.check_history(home).state == "ok"
    database.write_bytes(b"no database" * 1000)
    found = checks.check_history(home)
    assert (found.state, str(database) in found.found) == ("fail", True)
    assert "remove it" in found.fix


def test_an_old_home_is_closed_to_other_users(home: Home):
    home.store.mkdir(parents=True)
    (home.store / "rows").touch()
    home.store.chmod(0o755)
    (home.store / "rows").chmod(0o644)
    home.root.chmod(0o700)
    found = checks.check_home(home)
    assert (found.state, "2 files and directories were open to other users, and are closed now" in found.found) == ("ok", True)
    assert open_to_others(home.root) == []
    assert checks.check_home(home).found == str(home.root)


@pytest.mark.skipif(os.getuid() != 0, reason="gives files to another user")
def test_files_of_another_user_are_named(home: Home):
    home.store.mkdir(parents=True)
    (home.store / "rows").touch()
    os.chown(home.store / "rows", 54321, -1)
    found = checks.check_home(home)
    assert (found.state, found.fix) == ("warn", f"sudo chown -R root {home.root}")
    assert found.found == f"{home.root}: 1 files and directories are not its owner's, as {home.store / 'rows'} (54321's)"


def test_shared_store(home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    assert checks.check_store(home).found == "in the home"
    for url, state in ((f"file://{tmp_path}/share", "ok"), ("nope://x", "fail"), ("share", "fail")):
        monkeypatch.setenv("CLAWPIPE_STORE", url)
        assert checks.check_store(home).state == state


def test_mlflow_database_absent_whole_and_damaged(home: Home):
    assert checks.check_mlflow(home).state == "ok"
    database = home.mlflow / "mlflow.db"
    database.parent.mkdir(parents=True)
    with sqlite3.connect(database) as connection:
        connection.execute("CREATE TABLE alembic_version (version_num TEXT)")
    connection.close()
    assert checks.check_mlflow(home).state == "ok"
    database.write_bytes(b"damaged" * 100)
    assert checks.check_mlflow(home).state == "fail"


def test_servers_that_do_not_answer(home: Home, monkeypatch: pytest.MonkeyPatch):
    dead = f"http://127.0.0.1:{free_port()}"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", dead)
    monkeypatch.setenv("PREFECT_API_URL", f"{dead}/api")
    assert [checks.check_mlflow(home).state, checks.check_prefect(home).state] == ["fail", "fail"]


def test_prefect_server_that_answers(home: Home, monkeypatch: pytest.MonkeyPatch, prefect_server: str):
    monkeypatch.setenv("PREFECT_API_URL", prefect_server)
    assert checks.check_prefect(home).state == "ok"


def test_database_kind_without_its_password(home: Home, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PREFECT_SERVER_DATABASE_CONNECTION_URL", "postgresql+asyncpg://user:secret@host/db")
    found = checks.check_database(home).found
    assert found.startswith("postgresql")
    assert "secret" not in found


def test_home_below_a_directory_that_is_read_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(checks.os, "access", lambda path, mode: path != tmp_path)
    assert checks.check_home(Home(tmp_path / "new" / "home")).state == "fail"
