"""Bootstrap against a real server."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import timedelta

import pytest
from prefect import flow
from prefect.client.orchestration import get_client
from prefect.client.schemas.actions import GlobalConcurrencyLimitUpdate, WorkPoolCreate, WorkPoolUpdate
from prefect.states import Completed, Pending, Running

from clawpipe.cli import server
from clawpipe.core.store.home import Home
from clawpipe.errors import ConfigError
from flows import bootstrap
from tests.waiting import wait_until

pytestmark = pytest.mark.usefixtures("prefect_api")


def held_slots() -> int:
    with get_client(sync_client=True) as client:
        return client.read_global_concurrency_limit_by_name("gpu").active_slots


def test_twice_is_once():
    for _ in range(2):
        bootstrap.prepare_services(fresh_server=False)
    with get_client(sync_client=True) as client:
        assert [limit.limit for limit in client.read_global_concurrency_limits() if limit.name == "gpu"] == [1]
        assert client.read_work_pool(bootstrap.WORK_POOL).type == "process"
        [automation] = client.read_automations_by_name(bootstrap.ZOMBIES)
    assert automation.enabled


def test_slot_of_a_holder_that_died_with_its_server_is_freed():
    bootstrap.prepare_limit(fresh_server=True)
    with get_client(sync_client=True) as client:
        client.update_global_concurrency_limit("gpu", GlobalConcurrencyLimitUpdate(active_slots=1))
    bootstrap.prepare_limit(fresh_server=False)
    assert held_slots() == 1  # somebody may hold it
    bootstrap.prepare_limit(fresh_server=True)
    assert held_slots() == 0


def test_init_prepares_a_users_server_and_touches_nothing_else():
    theirs = WorkPoolCreate(name="theirs", type="process", concurrency_limit=7)
    with get_client(sync_client=True) as client:
        client.delete_global_concurrency_limit_by_name("gpu")
        client.create_work_pool(theirs)
        assert bootstrap.prepare_services(fresh_server=False)["concurrency limit gpu"]
        client.update_global_concurrency_limit("gpu", GlobalConcurrencyLimitUpdate(limit=3))
        client.update_work_pool(bootstrap.WORK_POOL, WorkPoolUpdate(concurrency_limit=5))
        try:
            assert not any(bootstrap.prepare_services(fresh_server=False).values())
            bootstrap.prepare_night(fresh_server=False)  # what `clawpipe run` does on it
            assert client.read_global_concurrency_limit_by_name("gpu").limit == 3
            assert client.read_work_pool(bootstrap.WORK_POOL).concurrency_limit == 5
            assert client.read_work_pool("theirs").concurrency_limit == 7
        finally:
            client.update_global_concurrency_limit("gpu", GlobalConcurrencyLimitUpdate(limit=1))
            client.update_work_pool(bootstrap.WORK_POOL, WorkPoolUpdate(concurrency_limit=None))
            client.delete_work_pool("theirs")


@pytest.mark.slow
def test_nights_of_models_that_have_none_any_more_are_removed():
    @flow(name=bootstrap.FLOW)
    def night() -> None: ...

    with get_client(sync_client=True) as client:
        flow_id = client.create_flow(night)
        for name in ("nightly", "nightly-a", "on-demand-b", "my-own"):
            client.create_deployment(flow_id, name, tags=["clawpipe", "nightly"])
        client.create_deployment(flow_id, "nightly-untagged")
        assert bootstrap.remove_deployments(["nightly-a"]) == ["nightly", "on-demand-b"]
        assert {one.name for one in client.read_deployments()} >= {"nightly-a", "my-own", "nightly-untagged"}


def test_the_command_says_what_it_made(prefect_server: str, home: Home):
    done = subprocess.run(
        [sys.executable, "-m", "clawpipe", "prefect", "init", "--json"], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["server"] == prefect_server
    assert set(told["made"]) == {
        "concurrency limit gpu",
        "work pool clawpipe",
        "work queue nights",
        f"automation {bootstrap.ZOMBIES}",
        f"automation {bootstrap.UNSTARTED}",
    }


def test_a_server_must_be_named(home: Home, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("PREFECT_API_URL")
    monkeypatch.setenv("PREFECT_HOME", str(home.root))
    with pytest.raises(ConfigError, match="no Prefect server is named"):
        server.init()


def test_only_the_night_that_died_with_its_server_is_crashed():
    with get_client(sync_client=True) as client:
        stale, other = (
            client.create_flow_run(flow(lambda: None, name=name), state=Running()).id for name in (bootstrap.FLOW, "other")
        )
        done = client.create_flow_run(flow(lambda: None, name=bootstrap.FLOW), state=Completed()).id
        bootstrap.prepare_night(fresh_server=False)
        assert client.read_flow_run(stale).state_name == "Running"
        bootstrap.prepare_night(fresh_server=True)
        assert [client.read_flow_run(run).state_name for run in (stale, other, done)] == ["Crashed", "Running", "Completed"]


def test_a_night_killed_before_its_first_heartbeat_is_crashed(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(bootstrap, "_SILENCE", timedelta(seconds=10))  # Prefect takes no less
    monkeypatch.setattr(bootstrap, "ZOMBIES", "zombies-of-seconds")
    with get_client(sync_client=True) as client:
        made = bootstrap._crash_zombies().create()
        try:
            killed, other = (
                client.create_flow_run(flow(lambda: None, name=name), state=Running()).id for name in (bootstrap.FLOW, "other")
            )
            wait_until(lambda: client.read_flow_run(killed).state_name == "Crashed", 90)
            assert client.read_flow_run(other).state_name == "Running"
        finally:
            client.delete_automation(made.id)


def test_a_run_whose_worker_died_before_it_began_starts_again(monkeypatch: pytest.MonkeyPatch):
    """Its queue, in which one run at a time has a place, is free again, and the next worker takes it."""
    monkeypatch.setattr(bootstrap, "_START", timedelta(seconds=10))
    monkeypatch.setattr(bootstrap, "UNSTARTED", "unstarted-of-seconds")
    bootstrap.prepare_services(fresh_server=False)
    with get_client(sync_client=True) as client:
        [made] = client.read_automations_by_name("unstarted-of-seconds")
        night, pool, queue = flow(lambda: None, name=bootstrap.FLOW), bootstrap.WORK_POOL, bootstrap.NIGHTS
        deployed = client.create_deployment(client.create_flow(night), "unstarted", work_pool_name=pool, work_queue_name=queue)
        try:
            lost = client.create_flow_run_from_deployment(deployed).id
            client.set_flow_run_state(lost, Pending())  # as a worker does that is killed then
            assert client.get_scheduled_flow_runs_for_work_pool(pool, [queue]) == []
            wait_until(lambda: client.read_flow_run(lost).state_name == "AwaitingRetry", 90)
            taken = client.get_scheduled_flow_runs_for_work_pool(pool, [queue])
            assert [one.flow_run.id for one in taken] == [lost]
        finally:
            client.delete_deployment(deployed)
            client.delete_automation(made.id)


@pytest.mark.filterwarnings("ignore::sqlalchemy.exc.SADeprecationWarning")  # MLflow's own models
def test_registry_database_is_made_once(home: Home, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    bootstrap.prepare_registry()
    made = (home.mlflow / "mlflow.db").stat().st_ino
    bootstrap.prepare_registry()
    assert (home.mlflow / "mlflow.db").stat().st_ino == made
