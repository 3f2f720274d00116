"""A night with Prefect and MLflow on Postgres, if its server is installed."""

from __future__ import annotations

import os
import pwd
import secrets
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import psycopg2
import pytest

from clawpipe.core.services.service import running
from clawpipe.core.system.ports import LOOPBACK, free_port
from tests.waiting import wait_until

pytestmark = pytest.mark.slow

PROGRAMS = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"))
_START_SECONDS = 60.0


class Postgres:
    """A server of the test's own, that asks for a password."""

    def __init__(self, port: int, password: str) -> None:
        self.place, self.password = f"postgres:{password}@{LOOPBACK}:{port}", password

    def rows(self, database: str, query: str) -> list[tuple]:
        with closing(psycopg2.connect(f"postgresql://{self.place}/{database}")) as connection, connection.cursor() as cursor:
            connection.autocommit = True  # a database is not made in a transaction
            cursor.execute(query)
            return cursor.fetchall() if cursor.description else []

    def answers(self) -> bool:
        try:
            return self.rows("postgres", "select 1") == [(1,)]
        except psycopg2.OperationalError:
            return False


@pytest.fixture
def postgres() -> Iterator[Postgres]:
    if not PROGRAMS:
        pytest.skip("no Postgres is installed: apt-get install postgresql")
    directory = Path(tempfile.mkdtemp(dir="/tmp"))
    (given := directory / "password").write_text(password := secrets.token_hex())
    user: list[str] = []
    if os.getuid() == 0:  # which the server refuses to be
        other = pwd.getpwnam("postgres")
        user = ["setpriv", f"--reuid={other.pw_uid}", f"--regid={other.pw_gid}", "--clear-groups"]
        for path in (directory, given):
            os.chown(path, other.pw_uid, other.pw_gid)
    data, port = str(directory / "data"), free_port()
    make = [*user, str(PROGRAMS[-1].with_name("initdb")), "-D", data, "-U", "postgres", "-A", "scram-sha-256", f"--pwfile={given}"]
    subprocess.run([*make, "--no-sync"], check=True, capture_output=True, timeout=120)
    serve = [*user, str(PROGRAMS[-1]), "-D", data, "-p", str(port), "-k", str(directory), "-h", LOOPBACK]
    with running("Postgres", serve, directory / "log", {}):
        server = Postgres(port, password)
        wait_until(server.answers, _START_SECONDS)
        yield server
    shutil.rmtree(directory)


@pytest.mark.long
def test_a_night_on_postgres(postgres: Postgres, new_clawpipe, monkeypatch: pytest.MonkeyPatch):
    for database in ("prefect", "mlflow"):
        postgres.rows("postgres", f"create database {database}")
    monkeypatch.setenv("PREFECT_SERVER_DATABASE_CONNECTION_URL", f"postgresql+asyncpg://{postgres.place}/prefect")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"postgresql://{postgres.place}/mlflow")
    clawpipe = replace(new_clawpipe("postgres"), api="")
    status = clawpipe.night("rounds=1")
    assert status["verdict"]
    assert postgres.rows("prefect", "select state_name from flow_run") == [("Completed",)]
    assert postgres.rows("mlflow", "select version from model_versions where name = 'clawpipe-tiny'") == [(1,)]
    files = [path for path in clawpipe.home.root.rglob("*") if path.is_file()]
    assert [path.name for path in files if path.name in ("prefect.db", "mlflow.db")] == []
    assert [path for path in files if postgres.password.encode() in path.read_bytes()] == []
    doctor = clawpipe("doctor", "--json")
    found = {check["name"]: check for check in doctor.json["checks"]}
    assert (found["database"]["found"], found["prefect"]["state"]) == ("postgresql behind Prefect", "ok")
    assert postgres.password not in doctor.stdout + doctor.stderr
