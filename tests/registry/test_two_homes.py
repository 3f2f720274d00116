"""Two homes and one registry: one history, one alias, and evidence that is used up by whichever home looked."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from mlflow import MlflowClient

from clawpipe.core.services.stack import mlflow_credentials, mlflow_server
from clawpipe.core.store.home import Home
from clawpipe.core.system.ports import free_port
from clawpipe.errors import BusyError, ConfigError
from clawpipe.learn.evaluation.verdict.looks import Looks
from clawpipe.learn.evaluation.verdict.verdict import Freshness
from clawpipe.record.registry.champions import incumbent
from clawpipe.record.registry.promotions import history, promote, rollback
from clawpipe.record.registry.runs import NightRun
from clawpipe.record.registry.tracking import Tracking
from clawpipe.record.registry.versions import register

each = pytest.mark.parametrize("storage", ["database", "file", "s3"], indirect=True)


@pytest.fixture
def storage(request, monkeypatch):
    """Where the common ledger is: in the registry's database, or in a shared store."""
    if request.param == "database":
        return ""
    url = (
        f"s3://{request.getfixturevalue('bucket')}/prefix"
        if request.param == "s3"
        else f"file://{request.getfixturevalue('tmp_path')}/share"
    )
    monkeypatch.setenv("CLAWPIPE_STORE", url)
    monkeypatch.setenv("CLAWPIPE_LEDGER", "store")
    return url


@pytest.fixture
def two(registry, tmp_path, monkeypatch):
    """Two homes on one database, with three versions that another tool could have made."""
    monkeypatch.setenv("MLFLOW_TRACKING_URI", registry.uri)
    client = MlflowClient(registry.uri, registry.uri)
    client.create_registered_model("agent")
    for _ in "123":
        client.create_model_version("agent", "/nowhere")
    return [Tracking.of(Home(tmp_path / name), "agent") for name in "AB"]


def in_service(tracking):
    return str(MlflowClient(tracking.uri, tracking.uri).get_model_version_by_alias("agent", "champion").version)


def by_night(tracking, version, expected=None, who="night"):
    return promote(tracking, version, who=who, reason="better", expected=expected)


def moves(tracking):
    return [(move.action, move.from_version, move.to_version) for move in history(tracking)]


@each
def test_a_rollback_goes_back_from_the_other_homes_rollback(two, storage):
    one, other = two
    by_night(one, "1")
    by_night(other, "2", expected="1")
    by_night(one, "3", expected="2")
    assert rollback(other, who="anne", reason="3 is bad").to_version == "2"
    assert rollback(one, who="ben", reason="2 is bad, too").to_version == "1"
    assert in_service(one) == "1"
    made = [("promote", None, "1"), ("promote", "1", "2"), ("promote", "2", "3"), ("rollback", "3", "2"), ("rollback", "2", "1")]
    assert moves(one) == moves(other) == made
    assert not list(one.home.glob("promotions*"))


@each
def test_a_champion_of_another_home_is_named(two, storage):
    one, other = two
    by_night(one, "1")
    with pytest.raises(BusyError, match=r"version 1 of agent is in service, since .* by night, but"):
        by_night(other, "2", who="another night")


@each
@pytest.mark.parametrize("point", ["promote.before_alias", "promote.after_alias", "promote.after_log"])
def test_the_other_home_finishes_a_killed_move(two, storage, killed_at, point):
    one, other = two
    by_night(one, "1")
    with killed_at(point):
        by_night(one, "2", expected="1")
    promote(other, "3", who="anne", reason="by hand", forced=True)
    before = [] if point == "promote.before_alias" else [("promote", "1", "2")]
    assert moves(one) == [("promote", None, "1"), *before, ("promote", "2" if before else "1", "3")]
    assert in_service(one) == "3"


@each
def test_evidence_is_used_up_by_whichever_home_looked(two, storage):
    one, other = (Looks(tracking.home, "agent", "shop") for tracking in two)
    one.record("monday", "monday", ["a", "b"])
    assert other.seen("monday") == {"a": 1, "b": 1}  # a night of the same name in another home
    assert other.record("monday", "monday", ["b", "c"]) == Freshness(identities=2, fresh=1, looks=1.0)
    assert one.seen() == other.seen() == {"a": 1, "b": 2, "c": 1}
    assert one.seen("monday") == {}


def test_two_homes_register_a_package_once(registry, new_package, tmp_path, monkeypatch):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", registry.uri)
    found = [
        register(Tracking.of(Home(tmp_path / name), "agent"), new_package(), lambda directory: None, NightRun(night="2030-01-02"))
        for name in "AB"
    ]
    assert found[0] == found[1]


def test_what_a_home_wrote_before_is_brought_along_once(two, monkeypatch, killed_at):
    one, other = two
    monkeypatch.setenv("CLAWPIPE_LEDGER", "home")
    by_night(one, "1")
    by_night(one, "2", expected="1")
    Looks(one.home, "agent", "shop").record("monday", "monday", ["a"])
    with pytest.raises(ConfigError, match="the promotions of agent are kept in another home"):
        by_night(other, "3", expected="2")
    with pytest.raises(ConfigError, match="the promotions of agent are kept in another home"):
        rollback(other, who="anne", reason="")
    monkeypatch.setenv("CLAWPIPE_LEDGER", "database")
    with pytest.raises(ConfigError, match="kept in another home"):  # until the first home has come
        by_night(other, "3", expected="2")
    with killed_at("ledger.carry"):
        history(one)
    for _ in range(2):
        assert moves(one) == [("promote", None, "1"), ("promote", "1", "2")]
    by_night(one, "3", expected="2")
    assert rollback(other, who="anne", reason="").to_version == "2"
    assert Looks(other.home, "agent", "shop").seen() == {"a": 1}
    monkeypatch.setenv("CLAWPIPE_LEDGER", "home")
    with pytest.raises(ConfigError, match="kept in another ledger"):
        rollback(one, who="anne", reason="")


def test_a_home_that_was_moved_is_the_same_home(two, tmp_path, monkeypatch):
    one, _ = two
    monkeypatch.setenv("CLAWPIPE_LEDGER", "home")
    by_night(one, "1")
    by_night(one, "2", expected="1")
    moved = Tracking.of(Home(one.home.rename(tmp_path / "elsewhere")), "agent")
    assert rollback(moved, who="anne", reason="").to_version == "1"


SCRIPT = Path(__file__).with_name("random_moves.py")


@pytest.mark.slow
@pytest.mark.long
def test_four_homes_that_are_killed_at_random_keep_one_history(two, tmp_path):
    """Four processes, 200 promotions, rollbacks and looks, children killed with SIGKILL wherever they are."""
    one, _ = two
    for _ in "456":
        MlflowClient(one.uri, one.uri).create_model_version("agent", "/nowhere")
    commands = [[sys.executable, str(SCRIPT), str(tmp_path / f"home-{n}"), str(n), "50"] for n in range(4)]
    homes = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for command in commands]
    told = [home.communicate(timeout=500) for home in homes]
    assert [home.returncode for home in homes] == [0] * 4, told
    results = [json.loads(line) for out, _ in told for line in out.splitlines()]
    promote(one, "1", who="anne", reason="the last", forced=True)  # completes what was killed last
    made = history(one)
    ids = [move.id for move in made]
    acknowledged = {result["move"] for result in results if "move" in result}
    assert len(results) >= 200
    assert len(acknowledged) > 50
    assert acknowledged <= set(ids)
    assert len(ids) == len(set(ids))
    assert [move.from_version for move in made[1:]] == [move.to_version for move in made[:-1]]
    assert in_service(one) == made[-1].to_version
    assert_rollbacks_lead_back(made)
    seen = Looks(one.home, "agent", "shop").seen()
    looked = Counter(result["look"] for result in results if "look" in result)
    assert all(seen[item] >= count for item, count in looked.items())
    assert sum(seen.values()) <= looked.total() + 200  # a killed look may have counted, unacknowledged


def assert_rollbacks_lead_back(made):
    """A promotion pushes; a rollback pops, and what lies below is in service."""
    stack = []
    for move in made:
        if move.action == "promote":
            stack.append(move.to_version)
        else:
            stack.pop()
            assert move.to_version == stack[-1]


@pytest.mark.slow
def test_a_second_home_at_a_server_without_a_common_ledger(registry, new_package, tmp_path, monkeypatch):
    """MLflow's own server; the command ends with one line and exit code 2."""
    with mlflow_server(Home(registry.home), free_port()) as (_, url):
        monkeypatch.setenv("MLFLOW_TRACKING_URI", url)
        for name, value in mlflow_credentials(Home(registry.home)).items():
            monkeypatch.setenv(name, value)
        one, other = (Tracking.of(Home(tmp_path / name), "agent") for name in "AB")
        for value in (0.25, 0.5):
            info = register(one, new_package(value), lambda directory: None, NightRun(night="2030-01-02"))
            by_night(one, info.version, expected="1" if info.version == "2" else None)
        with pytest.raises(ConfigError, match="another home"):
            register(other, new_package(0.75), lambda directory: None, NightRun(night="2030-01-02"))
        with pytest.raises(ConfigError, match="another home"):
            incumbent(other, "2030-01-03")
        command = [sys.executable, "-m", "clawpipe", "rollback", "--model", "agent"]
        env = os.environ | {"CLAWPIPE_HOME": str(other.home)}
        ended = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
        assert ended.returncode == 2
        assert ended.stderr.count("\n") == 2
        assert "CLAWPIPE_LEDGER" in ended.stderr
        assert incumbent(one, "2030-01-03").version == "2"
        assert rollback(one, who="anne", reason="").to_version == "1"
