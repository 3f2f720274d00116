"""The alarms of nights that never came or are gone, on a real server with schedules of seconds."""

from __future__ import annotations

import datetime
import os
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.actions import DeploymentScheduleCreate
from prefect.client.schemas.schedules import CronSchedule, IntervalSchedule
from prefect.states import Completed, Crashed, Running

from clawpipe.core.services.secret import home_secret
from clawpipe.core.services.service import running
from clawpipe.core.store.home import Home
from clawpipe.core.system.ports import LOOPBACK, free_port
from flows import alarms
from flows.bootstrap import FLOW
from flows.deployments import NIGHTLY
from tests.notifications.receiver import receiving

HOUR = datetime.timedelta(hours=1)
SECONDS = 10.0


def schedules(*given: tuple[str, str], active: bool = True) -> list[Any]:
    return [SimpleNamespace(schedule=CronSchedule(cron=cron, timezone=zone), active=active) for cron, zone in given]


@pytest.mark.parametrize(
    ("given", "hours"),
    [
        ([("0 2 * * *", "UTC")], 24),
        ([("0 2 * * 1-5", "UTC")], 72),
        ([("0 2 * * *", "UTC"), ("0 14 * * *", "UTC")], 12),
    ],
)
def test_the_period_is_the_longest_gap(given: list[tuple[str, str]], hours: int):
    assert alarms.period(schedules(*given)) == hours * HOUR


def test_what_is_not_scheduled_has_no_period():
    assert alarms.period([]) is alarms.period(schedules(("0 2 * * *", "UTC"), active=False)) is None


@contextmanager
def deployed(client: SyncPrefectClient, name: str) -> Iterator[uuid.UUID]:
    """A deployment of nights every few seconds, for the length of the block."""
    flow = client.create_flow_from_name(FLOW)
    schedule = IntervalSchedule(interval=datetime.timedelta(seconds=SECONDS))
    made = client.create_deployment(flow, name, schedules=[DeploymentScheduleCreate(schedule=schedule)], tags=[NIGHTLY])
    try:
        yield made
    finally:
        client.delete_deployment(made)
        for automation in client.read_automations():
            if automation.name.startswith("clawpipe-overdue") or automation.name == "clawpipe-night-crashed":
                client.delete_automation(automation.id)


@contextmanager
def watched(home: Home, night: Path) -> Iterator[str]:
    """The watcher of `clawpipe up`, and its address."""
    port = free_port()
    command = [sys.executable, "-m", "flows.watch", str(port), str(night)]
    with running("watcher", command, home.logs / "watcher.log", dict(os.environ)) as service:
        service.wait_healthy(f"http://{LOOPBACK}:{port}/health", 120)
        yield f"http://{LOOPBACK}:{port}"


@pytest.mark.slow
@pytest.mark.usefixtures("prefect_api")
def test_a_night_that_never_ends_and_one_that_is_gone_are_told(home: Home, tmp_path: Path):
    night = tmp_path / "night.yaml"
    with receiving() as receiver, get_client(sync_client=True) as client, deployed(client, "seconds") as deployment:
        night.write_text(f"notify: {{webhooks: [{{url: '{receiver.url}'}}]}}\n")
        with watched(home, night):
            late = next_of(receiver, "night.overdue")
            assert late["text"] == (
                f"no run of the deployment seconds has ended, with a verdict or for want of news, for {1.1 * SECONDS:g} seconds"
            )
            run = client.create_flow_run_from_deployment(deployment, name="night-1")
            client.set_flow_run_state(run.id, Running())
            client.set_flow_run_state(run.id, Completed(name="Nothing new"))
            ended = datetime.datetime.now(datetime.UTC)
            again = next_of(receiver, "night.overdue")
            assert again["id"] != late["id"]
            waited = datetime.datetime.fromisoformat(again["time"]) - ended
            assert waited.total_seconds() > 1.1 * SECONDS - 2  # times are of whole seconds
            run = client.create_flow_run_from_deployment(deployment, name='night-"2"')
            client.set_flow_run_state(run.id, Running())
            client.set_flow_run_state(run.id, Crashed(message="missing heartbeats"))
            gone = next_of(receiver, "night.crashed")
            assert (gone["night"], gone["text"]) == ('night-"2"', "the process is gone: missing heartbeats")


def next_of(receiver: Any, kind: str) -> dict[str, Any]:
    while (got := receiver.got.get(timeout=90))["kind"] != kind:
        pass
    return got


@pytest.mark.slow
@pytest.mark.usefixtures("prefect_api")
def test_alarms_that_fit_stay_and_others_go():
    """One made anew would begin to wait anew, at each start of `clawpipe up`."""
    with get_client(sync_client=True) as client, deployed(client, "nights") as deployment:
        assert alarms.prepare_alarms("http://127.0.0.1:1/alarm", "a:b") == {
            "clawpipe-night-crashed": True,
            "clawpipe-overdue-nights": True,
        }
        [made] = client.read_automations_by_name("clawpipe-overdue-nights")
        assert not any(alarms.prepare_alarms("http://127.0.0.1:2/alarm", "a:b").values())
        assert client.read_automations_by_name("clawpipe-overdue-nights")[0].id == made.id
        client.pause_deployment(deployment)
        assert list(alarms.prepare_alarms("http://127.0.0.1:2/alarm", "a:b")) == ["clawpipe-night-crashed"]
        assert client.read_automations_by_name("clawpipe-overdue-nights") == []
        assert alarms.keep_alarms({}) == set()
        assert client.read_automations_by_name("clawpipe-night-crashed") == []


@pytest.mark.slow
@pytest.mark.usefixtures("prefect_api")
def test_the_watcher_asks_for_the_secret(home: Home, tmp_path: Path):
    night = tmp_path / "night.yaml"
    night.write_text("{}\n")
    alarm = {"kind": "night.overdue", "text": "x", "about": "y"}
    user, _, password = home_secret(home).partition(":")
    with watched(home, night) as url:
        assert httpx.post(f"{url}/alarm", json=alarm).status_code == 401
        assert httpx.post(f"{url}/alarm", json=alarm, auth=(user, "wrong")).status_code == 401
        assert httpx.post(f"{url}/alarm", json=alarm, auth=(user, password)).status_code == 202
        assert httpx.post(f"{url}/alarm", json={"kind": "no"}, auth=(user, password)).status_code == 422
        assert httpx.get(f"{url}/health", headers={"host": "evil.example"}).status_code == 403
