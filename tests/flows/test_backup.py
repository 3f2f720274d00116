"""What docs/backup.md tells people to type: a backup, its restore to another path, and an upgrade's migration."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from contextlib import closing
from dataclasses import replace

import pytest

from tests.permissions import open_to_others
from tests.shown import section, shell

pytestmark = pytest.mark.slow

EVERY_TIME = {"record_look", "publish_lineage"}
OLDER = "75868b020152"  # of MLflow's migrations, one before the last
OLD_DATABASE = f"""
import sys
import alembic.command, sqlalchemy
from mlflow.store.db.utils import _get_alembic_config
from mlflow.store.tracking.dbmodels.initial_models import Base
Base.metadata.create_all(sqlalchemy.create_engine(url := f"sqlite:///{{sys.argv[1]}}"))
alembic.command.upgrade(_get_alembic_config(url), "{OLDER}")
"""


@pytest.mark.long
def test_a_restored_home_goes_on_under_another_path(finished, tmp_path):
    old, backup = finished.clawpipe.home.root, tmp_path / "a backup"
    restored = replace(finished.clawpipe, root=tmp_path / "mein Haus ñ 日本")
    for _ in range(2):  # the second one into the same directory
        shell(section("backup.md", "Back up"), CLAWPIPE_HOME=str(old), BACKUP=str(backup))
    assert not (backup / "work").exists()
    said = shell(section("backup.md", "Restore"), CLAWPIPE_HOME=str(restored.home.root), BACKUP=str(backup))
    assert "fail" not in said
    assert open_to_others(backup) == open_to_others(restored.home.root) == []

    again = restored.night()
    assert {step["name"] for step in again["steps"] if step["state"] != "cached"} == EVERY_TIME
    assert (again["night"], again["verdict"]) == (finished.status["night"], finished.status["verdict"])
    assert restored.artifacts() >= finished.artifacts
    traced = restored("trace", "clawpipe-tiny@1", "--json")
    assert traced.code == 0, traced.stderr
    assert str(old) not in traced.stdout
    assert all(path.is_relative_to(restored.home.root) for path in restored.registered().values())


@pytest.mark.long
def test_a_registry_of_an_older_mlflow_is_brought_along(new_clawpipe):
    clawpipe = new_clawpipe("older")
    database = clawpipe.home.mlflow / "mlflow.db"
    database.parent.mkdir(parents=True)
    subprocess.run([sys.executable, "-c", OLD_DATABASE, str(database)], check=True, capture_output=True, timeout=120)
    with closing(sqlite3.connect(database)) as connection:
        assert connection.execute("select version_num from alembic_version").fetchall() == [(OLDER,)]
    shell(section("backup.md", "Upgrade"), CLAWPIPE_HOME=str(clawpipe.home.root))
    with closing(sqlite3.connect(database)) as connection:
        assert connection.execute("select version_num from alembic_version").fetchall() != [(OLDER,)]


def test_a_night_says_what_an_older_registry_needs(finished, tmp_path):
    clawpipe = replace(finished.clawpipe, root=tmp_path)
    shell(section("backup.md", "Back up"), CLAWPIPE_HOME=str(finished.clawpipe.home.root), BACKUP=str(clawpipe.home.root))
    with closing(sqlite3.connect(clawpipe.home.mlflow / "mlflow.db")) as connection, connection:
        connection.execute("update alembic_version set version_num = ?", [OLDER])
    done = clawpipe.run("seed=7")
    assert done.code == 2
    assert "mlflow db upgrade" in done.json["fix"]
    assert "Traceback" not in done.stderr
