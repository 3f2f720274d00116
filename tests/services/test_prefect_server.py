"""The Prefect API of a night, and the environment of its process."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
import threading
import time
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx
import pytest

from clawpipe.core.services import prefect_server
from clawpipe.core.services.prefect_server import (
    Api,
    announce,
    announced_url,
    configured_url,
    environment,
    no_api,
    prefect_api,
    server,
)
from clawpipe.core.services.secret import home_secret
from clawpipe.core.store.home import Home
from clawpipe.core.system.ports import free_port
from clawpipe.errors import BusyError, DataError
from tests.waiting import answered

PROFILES = """
active = "work"
[profiles.work]
PREFECT_API_URL = "http://desk/api"
[profiles.play]
PREFECT_API_URL = "http://play/api"
[profiles.none]
"""
POSTGRES = "postgresql+asyncpg://me:pw@localhost/prefect"


@pytest.fixture
def profiles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PREFECT_HOME", str(tmp_path))
    (tmp_path / "profiles.toml").write_text(PROFILES)
    return tmp_path / "profiles.toml"


def test_active_profile_is_read_as_prefect_reads_it(profiles: Path, monkeypatch: pytest.MonkeyPatch):
    script = "from prefect.settings import get_current_settings; print(get_current_settings().api.url)"
    asked = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120)
    assert configured_url() == "http://desk/api" == asked.stdout.strip()
    monkeypatch.setenv("PREFECT_PROFILE", "play")
    assert configured_url() == "http://play/api"
    monkeypatch.setenv("PREFECT_PROFILE", "none")
    assert configured_url() is None


def test_environment_wins_over_the_profile(profiles: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PREFECT_API_URL", "http://env/api")
    assert configured_url() == "http://env/api"


@pytest.mark.parametrize("text", ["", "active = 3", "not toml [", 'active = "gone"'])
def test_without_a_usable_profile_nothing_is_configured(profiles: Path, text: str):
    profiles.write_text(text)
    assert configured_url() is None


def test_server_of_the_same_home_is_found_while_it_answers(prefect_server: str, home: Home):
    assert announced_url(home) is None
    announce(home, prefect_server)
    with prefect_api(home) as api:
        assert api == Api(prefect_server, private=False)
    copy = Home(home.root.parent / "copy")
    shutil.copytree(home.root, copy.root)
    assert announced_url(copy) is None  # it is the other home's
    announce(home, f"http://127.0.0.1:{free_port()}/api")
    assert announced_url(home) is None


class _Busy(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        time.sleep(2.5)
        self.send_response(200)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None: ...


def test_a_busy_server_of_the_home_is_there(home: Home):
    """A night took it for dead, and started another one on the same database."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _Busy) as busy:
        threading.Thread(target=busy.serve_forever, daemon=True).start()
        announce(home, url := f"http://127.0.0.1:{busy.server_port}/api")
        assert announced_url(home) == url
        busy.shutdown()


def test_configured_api_keeps_the_users_prefect_settings(prefect_server: str, home: Home, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PREFECT_API_URL", prefect_server)
    with prefect_api(home) as api:
        env = environment(home, api)
    assert env["PREFECT_API_URL"] == prefect_server
    assert {"PREFECT_HOME", "PREFECT_PROFILE"}.isdisjoint(env)
    assert environment(home, Api("http://127.0.0.1:1/api", private=True))["PREFECT_HOME"] == str(home.prefect)


def test_a_missing_configured_server_is_one_line_and_try_again(home: Home, monkeypatch: pytest.MonkeyPatch):
    """This once took a minute of retries and gave 105 lines of traceback."""
    port = free_port()
    monkeypatch.setenv("PREFECT_API_URL", f"http://me:secret@127.0.0.1:{port}/api")
    with pytest.raises(BusyError) as away, prefect_api(home):
        pass
    assert away.value.where == f"http://127.0.0.1:{port}/api"  # without the password
    assert "Connection refused" in away.value.what
    assert "PREFECT_API_URL" in away.value.fix


def test_a_damaged_database_is_said_before_the_server_starts(home: Home, monkeypatch: pytest.MonkeyPatch):
    home.prefect.mkdir(parents=True)
    (home.prefect / "prefect.db").write_bytes(b"no database" * 1000)
    with pytest.raises(DataError, match="damaged") as damaged, prefect_api(home):
        pass
    assert damaged.value.where == str(home.prefect / "prefect.db")


def test_import_of_prefect_leaves_no_trace(tmp_path: Path):
    script = "from clawpipe.core.services.prefect_server import no_api\nwith no_api(): import prefect.tasks"
    env = {name: value for name, value in os.environ.items() if not name.startswith("PREFECT_")} | {"HOME": str(tmp_path)}
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", script], env=env, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert list(tmp_path.iterdir()) == []


def test_no_api_restores_the_environment(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("PREFECT_HOME")
    monkeypatch.setenv("DO_NOT_TRACK", "0")
    before = dict(os.environ)
    with no_api():
        assert Path(os.environ["PREFECT_HOME"]).is_dir()
        assert os.environ["DO_NOT_TRACK"] == "1"  # a plan sends nothing, and prints no notice about it
    assert dict(os.environ) == before


NIGHT = """
import logging, warnings
logging.captureWarnings(True)
from prefect import flow, get_run_logger, task
from flows.bootstrap import drain

@task
def work():
    get_run_logger().info("said in a task")
    warnings.warn("a library is deprecated")
    logging.getLogger("some.library").warning("said by a library")

@flow
def night():
    work()

night()
drain()
"""


def test_flow_process_says_nothing_on_the_terminal(prefect_server: str, home: Home, tmp_path: Path):
    log = tmp_path / "night.log"
    env = os.environ | environment(home, Api(prefect_server, private=False, configured=True), log)
    done = subprocess.run([sys.executable, "-c", NIGHT], env=env, capture_output=True, text=True, timeout=240)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    logged = log.read_text()
    for line in ("said in a task", "a library is deprecated", "said by a library", "Finished in state Completed()"):
        assert line in logged


@pytest.mark.slow
def test_a_later_server_brings_the_database_along_and_forgets(home: Home):
    """Of an older Prefect, with runs that ended long ago: their dates are moved, and no clock is waited for."""
    with server(home, free_port(), {"PREFECT_SERVER_CSRF_PROTECTION_ENABLED": "false"}) as (_, url):
        flow = post(home, f"{url}/flows/", {"name": "nightly-retrain"})["id"]
        state = {"type": "COMPLETED", "name": "Completed"}
        old, new = (post(home, f"{url}/flow_runs/", {"flow_id": flow, "state": state})["id"] for _ in range(2))
    with closing(sqlite3.connect(home.prefect / "prefect.db", timeout=30)) as database, database:
        for run, days in ((old, 91), (new, 89)):
            query = "update flow_run set end_time = datetime('now', ?), state_type = 'COMPLETED' where id = ?"
            assert database.execute(query, [f"-{days} days", run]).rowcount == 1
    newest = version(home)
    env = os.environ | {"PREFECT_HOME": str(home.prefect), "PREFECT_PROFILE": "ephemeral"}
    back = [sys.executable, "-m", "prefect", "server", "database", "downgrade", "-y", "-r", "-1"]
    subprocess.run(back, env=env, check=True, capture_output=True, timeout=120)
    assert version(home) != newest
    with server(home, free_port(), {"PREFECT_SERVER_SERVICES_DB_VACUUM_LOOP_SECONDS": "1"}):
        assert version(home) == newest
        deadline = time.monotonic() + 120
        while (left := runs_of(home)) == {old, new}:
            assert time.monotonic() < deadline
        assert left == {new}


def version(home: Home) -> str:
    with closing(sqlite3.connect(home.prefect / "prefect.db", timeout=30)) as database:
        return database.execute("select version_num from alembic_version").fetchone()[0]


def post(home: Home, url: str, body: dict) -> dict:
    user, _, password = home_secret(home).partition(":")
    with httpx.Client(auth=(user, password), timeout=120) as client:
        return answered(client, "POST", url, json=body)


def runs_of(home: Home) -> set[str]:
    with closing(sqlite3.connect(home.prefect / "prefect.db", timeout=30)) as database:
        return {run for (run,) in database.execute("select id from flow_run")}


@pytest.mark.parametrize(
    ("url", "timeout", "seconds"), [(POSTGRES, None, 120), (POSTGRES, "7", 7), ("sqlite+aiosqlite:///x.db", None, 5)]
)
def test_a_server_waits_for_postgres(monkeypatch: pytest.MonkeyPatch, url: str, timeout: str | None, seconds: float):
    from prefect.settings import Settings

    monkeypatch.setenv("PREFECT_SERVER_DATABASE_CONNECTION_URL", url)
    if timeout:
        monkeypatch.setenv("PREFECT_SERVER_DATABASE_CONNECTION_TIMEOUT", timeout)
    for name, value in prefect_server._patience().items():
        monkeypatch.setenv(name, value)
    assert Settings().server.database.connection_timeout == seconds
