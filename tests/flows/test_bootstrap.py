"""Bootstrap against a real server."""

from __future__ import annotations

import pytest
from prefect import flow
from prefect.client.orchestration import get_client
from prefect.client.schemas.actions import GlobalConcurrencyLimitUpdate
from prefect.states import Completed, Running

from clawpipe.store.home import Home
from flows import bootstrap

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


def test_night_that_died_with_its_server_is_crashed_and_others_are_left_alone():
    with get_client(sync_client=True) as client:
        stale, other = (
            client.create_flow_run(flow(lambda: None, name=name), state=Running()).id for name in (bootstrap.FLOW, "other")
        )
        done = client.create_flow_run(flow(lambda: None, name=bootstrap.FLOW), state=Completed()).id
        bootstrap.prepare_night(fresh_server=False)
        assert client.read_flow_run(stale).state_name == "Running"
        bootstrap.prepare_night(fresh_server=True)
        assert [client.read_flow_run(run).state_name for run in (stale, other, done)] == ["Crashed", "Running", "Completed"]


@pytest.mark.filterwarnings("ignore::sqlalchemy.exc.SADeprecationWarning")  # MLflow's own models
def test_registry_database_is_made_once(home: Home, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    bootstrap.prepare_registry()
    made = (home.mlflow / "mlflow.db").stat().st_ino
    bootstrap.prepare_registry()
    assert (home.mlflow / "mlflow.db").stat().st_ino == made
