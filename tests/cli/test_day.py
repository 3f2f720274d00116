"""A day in a minute: the clock, the queue and an event do everything, and nobody starts anything by hand."""

from __future__ import annotations

import datetime
import json
import os
import signal
import subprocess
import sys
import time
from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4
from zoneinfo import ZoneInfo

import httpx
import pytest

from clawpipe.core.services.stack import project_directory
from clawpipe.core.store.files import exclusive
from clawpipe.core.store.home import Home
from clawpipe.core.system.ports import free_port
from clawpipe.record.runs.listing import list_runs
from tests.cli.conftest import Up, services

pytestmark = [pytest.mark.slow, pytest.mark.long]

SETTINGS = (
    *("night={date}", "rollouts=null", "trajectories=[new]", "environment.name=conversations", "evaluation.heldout_share=0.5"),
    *("rounds=1", "train.method=sft", "curation.imitate=any", "train.optimizer_steps=4", "train.start_from=champion"),
    *("gate.promote_on_likelihood=true", "gate.alpha=0.5", "gate.nights=1", "gate.min_effect=0", "gate.min_items=1"),
)
CONFIG = ("--config", str(project_directory() / "configs" / "tiny.yaml"), *(word for one in SETTINGS for word in ("-o", one)))
LONG = 400.0  # usually a tenth of it
ENDED = ("COMPLETED", "FAILED", "CRASHED", "CANCELLED")


def chats(first: int) -> str:
    """Forty conversations of twenty users, who ask about other numbers than those of another `first`."""
    talks = [
        {"session_id": f"s{n}", "user": f"u{n // 2}", "messages": [
            {"role": "user", "content": f"What is {n} and {n + 3}?"}, {"role": "assistant", "content": f"It is {2 * n + 3}."}]}
        for n in range(first, first + 40)
    ]  # fmt: skip
    return "".join(f"{json.dumps(talk)}\n" for talk in talks)


def wait_for(what: Callable[[], Any], up: Up, seconds: float = LONG) -> Any:
    deadline = time.monotonic() + seconds
    while not (found := what()):
        states = {
            name: [(run["state_name"], run["state"]["message"]) for run in up.runs(name)] for name in ("nightly", "on-demand")
        }
        assert time.monotonic() < deadline, states
        time.sleep(0.3)
    return found


def clawpipe(home: Home, *words: str) -> str:
    command, env = [sys.executable, "-m", "clawpipe.cli.main", *words], os.environ | {"CLAWPIPE_HOME": str(home.root)}
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=LONG)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@contextmanager
def served(home: Home) -> Iterator[Callable[[], dict[str, Any]]]:
    """A server of the alias; yields what asks it."""
    port, env = free_port(), os.environ | {"CLAWPIPE_HOME": str(home.root), "CLAWPIPE_API_KEY": "k"}
    command = [sys.executable, "-m", "clawpipe.cli.main", "serve", "models:/clawpipe-tiny@champion", "--port", str(port)]
    url, asked = (
        f"http://127.0.0.1:{port}/v1",
        {"model": "clawpipe-tiny", "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 1},
    )

    def ask() -> dict[str, Any]:
        try:
            answer = httpx.post(f"{url}/chat/completions", json=asked, headers={"Authorization": "Bearer k"}, timeout=60)
        except httpx.ConnectError:
            return {}
        assert answer.status_code == 200, answer.text
        return answer.json()

    with subprocess.Popen([*command, "--session-seconds", "0"], env=env, stdout=subprocess.DEVNULL) as process:
        try:
            yield ask
        finally:
            process.terminate()


@dataclass(frozen=True)
class Day:
    """The services of a home with a watched folder."""

    up: Up
    folder: Path

    def start(self, deployment: str, days_ago: float = 0, **more: Any) -> str:
        """Create a run, as an automation does, that was due some days ago; return its id."""
        due = (datetime.datetime.now(datetime.UTC) - datetime.timedelta(days=days_ago)).isoformat()
        state = {"type": "SCHEDULED", "state_details": {"scheduled_time": due}}
        by = {"Prefect-Automation-Id": str(uuid4()), "Prefect-Automation-Name": b64encode(b"the test").decode()}
        url = f"{self.up.prefect}/deployments/{self.up.deployed(deployment)['id']}/create_flow_run"
        return self.up.ask(url, "POST", json={"state": state, **more}, headers=by)["id"]

    def run(self, identity: str) -> dict[str, Any]:
        return self.up.ask(f"{self.up.prefect}/flow_runs/{identity}")

    def ended(self, identity: str, *states: str) -> dict[str, Any]:
        """Wait until a run is in one of the states, which are types; return it."""
        return wait_for(lambda: (run := self.run(identity))["state_type"] in states and run, self.up)

    def hold(self, *, held: bool) -> None:
        """Let no night start, or let them start again."""
        queue = self.up.deployed("nightly")["work_queue_id"]
        self.up.ask(f"{self.up.prefect}/work_queues/{queue}", "PATCH", json={"is_paused": held})

    def message(self, identity: str) -> str:
        return self.run(identity)["state"]["message"]


@pytest.fixture(scope="module")
def day(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Day]:
    root = tmp_path_factory.mktemp("day")
    home, folder = Home(root / "home"), root / "agent"
    folder.mkdir()
    (folder / "first.jsonl").write_text(chats(0))
    clawpipe(home, "ingest", "--watch", str(folder))
    with services(home, *CONFIG, "--ready-at", "30") as up:
        yield Day(up, folder)


def test_a_day_in_a_minute(day: Day):
    """A file, ingest by the clock, an event, a night, a verdict, and the server of the alias answers with the new version."""
    day.up.schedule("ingest", {"interval": 20, "timezone": "UTC"})
    (day.folder / "second.jsonl").write_text(chats(100))
    [night] = wait_for(lambda: [run for run in day.up.runs("on-demand") if run["state_type"] == "COMPLETED"], day.up)
    assert night["created_by"]["type"] == "AUTOMATION"
    with served(day.up.home) as ask:
        before = wait_for(ask, day.up)
        (day.folder / "third.jsonl").write_text(chats(200))
        after = wait_for(lambda: (new := ask())["system_fingerprint"] != before["system_fingerprint"] and new, day.up)
    day.up.schedule("ingest", {"cron": "0 0 1 1 *", "timezone": "UTC"})  # later tests say themselves when something is ingested
    assert after["choices"]
    assert not [run["state"] for run in day.up.runs("ingest") if run["state_type"] in ("FAILED", "CRASHED")]
    wait_for(lambda: all(run["state_type"] in ENDED for run in day.up.runs("on-demand")), day.up)


def test_late_nights_are_one_under_the_newest_label(day: Day):
    """After days asleep three nights were due; one runs, with all that waits."""
    day.hold(held=True)
    (day.folder / "fourth.jsonl").write_text(chats(300))
    late = [day.start("nightly", days) for days in (4, 3, 2)]
    day.hold(held=False)
    newest = day.ended(late[-1], "COMPLETED")
    assert newest["name"].startswith(str(datetime.datetime.now(datetime.UTC).date() - datetime.timedelta(days=2)))
    assert [day.run(one)["state_type"] for one in late[:2]] == ["CANCELLED", "CANCELLED"]
    assert "waits already, and does the work of this one" in day.message(late[0])
    status = json.loads(clawpipe(day.up.home, "status", "--night", newest["name"], "--json"))
    assert {step["name"]: step for step in status["steps"]}["hold_out"]["rows_in"] == 40  # ingested by the night itself


def test_a_run_that_is_hardly_late_leaves_nothing_to_the_next(day: Day):
    """Where starting takes longer than the interval, each run would find a later one, and none would work."""
    day.hold(held=True)
    close = [day.start("nightly", seconds / 86_400) for seconds in (40, 20)]
    day.hold(held=False)
    assert [day.ended(one, *ENDED)["state_type"] for one in close] == ["COMPLETED", "COMPLETED"]


def test_a_quiet_night_is_no_failure_and_has_its_schedules_date(day: Day):
    # 14 hours before, or 11 behind: it is another day there, of which no night has the label yet.
    zone = "Pacific/Kiritimati" if datetime.datetime.now(datetime.UTC).hour >= 10 else "Pacific/Pago_Pago"
    # Longer than a start takes, so that no run waits when the next test begins.
    day.up.schedule("nightly", {"interval": 90, "timezone": zone})
    [run, *_] = wait_for(
        lambda: [run for run in day.up.runs("nightly") if run["auto_scheduled"] and run["state_type"] == "COMPLETED"], day.up
    )
    day.up.schedule("nightly", {"cron": "0 0 1 1 *", "timezone": "UTC"})
    assert run["state"]["message"] == "nothing has been ingested that no night for clawpipe-tiny has used"
    due = datetime.datetime.fromisoformat(run["expected_start_time"]).astimezone(ZoneInfo(zone))
    assert run["name"].startswith(f"{due.date()}-")


def test_a_home_in_use_is_tried_again(day: Day):
    with exclusive(day.up.home.locks / "night.lock", "the home"):
        waits = day.start("nightly")
        wait_for(lambda: day.run(waits)["state_name"] == "AwaitingRetry", day.up)
        assert f"the home is in use by process {os.getpid()}" in day.message(waits).replace(f" {day.up.home.root}", "")
    again = {"type": "SCHEDULED", "state_details": {"scheduled_time": datetime.datetime.now(datetime.UTC).isoformat()}}
    day.up.ask(f"{day.up.prefect}/flow_runs/{waits}/set_state", "POST", json={"state": again, "force": True})  # a minute is long
    assert day.ended(waits, *ENDED)["state_type"] == "COMPLETED"


def test_the_worker_of_another_home_refuses(day: Day):
    refused = day.start("nightly", job_variables={"env": {"CLAWPIPE_DEPLOYED_HOME": "0123456789ab"}})
    assert day.ended(refused, *ENDED)["state_type"] == "FAILED"
    assert "this deployment is for the home with the id 0123456789ab" in day.message(refused)
    log = (day.up.home.root / "logs" / "worker.log").read_text()
    assert "Traceback" not in log


def test_a_run_whose_config_cannot_be_read_is_listed(day: Day):
    lost = day.start("nightly", parameters={"config": "/nowhere/night.yaml", "overrides": ["seed=3"]})
    assert day.ended(lost, *ENDED)["state_type"] == "FAILED"
    assert "the config file does not exist" in day.message(lost)
    [run] = [run for run in list_runs(day.up.home, state="failed") if run.flow_run == lost]
    assert (run.started_by, run.config, run.overrides) == ("deployment", "/nowhere/night.yaml", ["seed=3"])
    assert run.why == "the config file does not exist"
    assert "Traceback" not in (day.up.home.root / "logs" / "worker.log").read_text()


def test_a_night_killed_with_its_worker_goes_on_under_its_label(day: Day):
    """Its run stays Running until the automation finds no heartbeat, and holds the queue."""
    (day.folder / "fifth.jsonl").write_text(chats(400))
    killed = day.start("nightly", 5)
    wait_for(
        lambda: (
            day.run(killed)["state_type"] == "RUNNING" and (day.up.home.runs / day.run(killed)["name"] / "status.json").exists()
        ),
        day.up,
    )
    for process in [*of_home(day.up.home, b"worker\0start"), *of_home(day.up.home, b"prefect.engine", b"flow-run\0execute")]:
        os.kill(process, signal.SIGKILL)
    later = day.start("nightly")
    label = day.ended(killed, "CRASHED")["name"]
    done = day.ended(later, *ENDED)
    assert done["state"]["message"] == "nothing has been ingested that no night for clawpipe-tiny has used"  # of its own day
    assert json.loads(clawpipe(day.up.home, "status", "--night", label, "--json"))["verdict"]


def of_home(home: Home, *words: bytes) -> list[int]:
    """Processes of the home whose command line has one of the words."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended
            command = (path / "cmdline").read_bytes()
            if f"{home.root}".encode() in (path / "environ").read_bytes() and any(word in command for word in words):
                found.append(int(path.name))
    return found
