"""`clawpipe up` for real: everything starts, answers, is deployed, and ends together."""

from __future__ import annotations

import datetime
import os
import signal
import socket
import sqlite3
import stat
import subprocess
import sys
import time
from contextlib import closing, suppress
from pathlib import Path

import httpx
import pytest

from clawpipe.cli.up import _tell
from clawpipe.core.config import load_config
from clawpipe.core.services import stack
from clawpipe.core.services.prefect_server import announced_url, logs
from clawpipe.core.services.schedules import await_schedule, scheduler_error
from clawpipe.core.services.service import Service, answers, running
from clawpipe.core.store.home import Home
from clawpipe.core.system.ports import free_port, is_free
from clawpipe.errors import BusyError
from clawpipe.record.notifications.outbox import leave
from clawpipe.record.runs.listing import list_runs
from clawpipe.record.runs.stop import stop_run
from clawpipe.serve.monitoring.exposition import HOME_BYTES
from clawpipe.start.doctor.checks import check_schedules
from tests.notifications.receiver import receiving
from tests.permissions import open_to_others
from tests.shown import section, shell

CLI = [sys.executable, "-m", "clawpipe.cli.main", "up"]


def test_wanted_port_must_be_free_and_the_usual_one_gives_way():
    free = free_port()
    assert stack.choose_port(free, 1) == stack.choose_port(None, free) == free
    with socket.create_server(("127.0.0.1", free)):
        assert stack.choose_port(None, free) != free
        with pytest.raises(BusyError, match=str(free)):
            stack.choose_port(free, 1)


def test_end_of_a_service_is_told_with_its_log(tmp_path: Path):
    log = tmp_path / "worker.log"
    log.write_text("out of memory\n")
    gone = subprocess.Popen([sys.executable, "-c", "raise SystemExit(9)"])
    gone.wait()
    with pytest.raises(BusyError, match=r"worker ended with code 9(.|\n)*out of memory"):
        stack.Stack("", "", (Service("worker", gone, log),)).watch()


def test_a_worker_that_ends_is_started_again_later_each_time(tmp_path: Path):
    said: list[str] = []
    failing: list[str] = []
    command = [sys.executable, "-c", "raise SystemExit(3)"]
    with stack.Restarted(lambda: running("worker", command, tmp_path / "worker.log", {}), said.append, failing.append) as worker:
        now, delays = time.monotonic(), []
        for _ in range(8):
            assert worker.service is not None
            worker.service.process.wait()
            worker.look(now)
            assert worker.service is None
            due = next(seconds for seconds in range(1, 100) if started(worker, now + seconds))
            delays.append(due)
            now += due
        assert delays == [2, 4, 8, 16, 32, 60, 60, 60]
        assert failing == [f"the worker keeps ending, now with code 3; its log is {tmp_path / 'worker.log'}"]  # told once
        assert worker.service is not None
        worker.service.process.wait()
        worker.look(now + 1000)  # it held for long: a new beginning
        assert "ended with code 3 and starts again in 1 s" in said[-1]


def test_the_end_of_a_server_is_told_to_everybody_before_up_ends(home: Home, tmp_path: Path):
    with receiving() as one, receiving() as other:
        nights = [tmp_path / f"night-{number}.yaml" for number in range(2)]
        for night, receiver in zip(nights, (one, other), strict=True):
            night.write_text(f"notify: {{webhooks: [{{url: '{receiver.url}'}}]}}\n")
        leave(home, "service.failing", "Prefect server ended with code 1")
        _tell(home, [load_config(night, []) for night in nights])
        told = [(got["kind"], got["text"]) for receiver in (one, other) for got in receiver.all()]
    assert told == [("service.failing", "Prefect server ended with code 1")] * 2


def started(worker: stack.Restarted, now: float) -> bool:
    worker.look(now)
    return worker.service is not None


@pytest.mark.slow
@pytest.mark.long
def test_the_rest_stays_up_when_the_worker_dies(up):
    """`up` ended with it, and with it the server of whoever was at work."""
    deadline = time.monotonic() + 60
    while not (workers := workers_of(up.home)):  # its guard may not have started it yet
        assert time.monotonic() < deadline
        time.sleep(0.05)
    os.kill(workers[0], signal.SIGKILL)
    told = [up.process.stdout.readline() for _ in range(2)]
    assert "the worker ended with code -9 and starts again in" in told[0]
    assert told[1] == "it runs again\n"
    assert answers(f"{up.prefect}/health")
    assert up.process.poll() is None


@pytest.mark.slow
@pytest.mark.long
def test_a_deployed_night_has_a_run_that_can_be_stopped(up, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """`pending` while it waits for its turn or its next try; once stopped, Prefect calls it Cancelled, and nothing of it runs."""
    monkeypatch.setenv("PREFECT_API_AUTH_STRING", "clawpipe:of-another-server")
    names = [f"{up.prefect}/deployments/name/nightly-retrain/{name}" for name in ("nightly", "on-demand")]
    tiny = {"config": str(stack.project_directory() / "configs" / "tiny.yaml"), "overrides": []}
    make = [f"{up.prefect}/deployments/{up.ask(name)['id']}/create_flow_run" for name in names]
    runs = [up.ask(url, "POST", json={"parameters": tiny})["id"] for url in make]
    later = datetime.datetime.now(datetime.UTC) + datetime.timedelta(hours=1)
    again = {"type": "SCHEDULED", "name": "AwaitingRetry", "state_details": {"scheduled_time": later.isoformat()}}
    runs.append(up.ask(make[1], "POST", json={"parameters": tiny, "state": again})["id"])
    deadline = time.monotonic() + 60
    while not {run.id for run in list_runs(up.home, state="pending")} >= {*runs[1:]}:  # a busy server is not asked twice
        assert time.monotonic() < deadline
        time.sleep(0.2)
    assert {run.id for run in list_runs(up.home, state="pending", model="clawpipe-tiny")} >= {*runs[1:]}
    with monkeypatch.context() as shared:
        shared.setenv("PREFECT_API_URL", up.prefect)
        shared.setenv("PREFECT_API_AUTH_STRING", up.secret)
        assert list_runs(Home(tmp_path / "other"), state="pending") == []
    assert stop_run(up.home, runs[2]).state == "stopped"
    assert stop_run(up.home, runs[1]).state == "stopped"  # it waits behind the first: the worker starts them in turn
    deadline = time.monotonic() + 120
    while not (started := list_runs(up.home, state="running")):
        assert time.monotonic() < deadline
        time.sleep(0.2)
    [run] = started
    assert (run.flow_run, run.started_by) == (runs[0], "deployment")
    assert stop_run(up.home, runs[0]).state == "stopped"
    assert [up.ask(f"{up.prefect}/flow_runs/{run}")["state"]["type"] for run in runs] == ["CANCELLED"] * 3
    assert run.process
    assert run.process.find() is None


@pytest.mark.slow
def test_figures_are_at_the_address_that_is_printed(up):
    address = next(line.split()[1] for line in up.said.splitlines() if line.startswith("Metrics"))
    deadline = time.monotonic() + 60
    while not answers(address.replace("/metrics", "/health")):  # the watcher starts last
        assert time.monotonic() < deadline
        time.sleep(0.05)
    user, _, password = up.secret.partition(":")
    answer = httpx.get(address, auth=(user, password), timeout=60)
    assert answer.status_code == 200
    assert f'{HOME_BYTES}{{directory="prefect"}}' in answer.text
    assert httpx.get(address, timeout=60).status_code == 401


def workers_of(home: Home) -> list[int]:
    """Workers themselves, without their guards, which are Python without site packages."""
    commands = {int(path.parent.name): path.read_bytes() for path in processes_of(home)}
    return [number for number, command in commands.items() if b"worker\0start" in command and b"\0-S\0" not in command]


@pytest.mark.slow
def test_the_clock_starts_what_is_deployed(up):
    """On SQLAlchemy 2.1 the scheduler failed each minute, and nothing was ever scheduled."""
    found = {one.name: one for one in await_schedule(up.home, up.prefect, 120)}
    assert set(found) == {"nightly", "ingest"}
    now = datetime.datetime.now(datetime.UTC)
    night, ingest = found["nightly"].next_run, found["ingest"].next_run
    assert night
    assert ingest
    assert (night.hour, night.minute) == (2, 0)
    assert datetime.timedelta() < night - now <= datetime.timedelta(days=1)
    assert ingest.minute % 10 == 0
    assert ingest - now <= datetime.timedelta(minutes=10)
    assert scheduler_error(logs(up.home) / "prefect-server.log") is None
    check = check_schedules(up.home)
    assert check.state == "ok"
    assert f"nightly: next {night:%Y-%m-%d} 02:00 UTC" in check.found
    for one in up.ask(f"{up.prefect}/deployments/filter", "POST", json={}):
        up.pause(one["id"], paused=True)
    assert check_schedules(up.home).state == "fail"
    for one in up.ask(f"{up.prefect}/deployments/filter", "POST", json={}):
        up.pause(one["id"], paused=False)


def test_a_home_without_services_is_told(tmp_path: Path):
    check = check_schedules(Home(tmp_path))
    assert (check.state, check.found) == ("warn", "`clawpipe up` does not run on this home")


def test_an_error_of_the_scheduler_is_found_in_its_log(tmp_path: Path):
    log = tmp_path / "prefect-server.log"
    assert scheduler_error(log) is None
    log.write_text(
        "12:00 | ERROR | docket.dependencies - schedule_deployments failed\nTraceback:\nsql.InvalidRequestError: bulk DML\n"
    )
    assert scheduler_error(log) == "sql.InvalidRequestError: bulk DML"


@pytest.mark.slow
def test_the_secret_is_in_one_file_alone_and_in_no_arguments(up):
    home = up.home
    secret = up.secret.partition(":")[2].encode()
    assert stat.S_IMODE((home.root / "secret").stat().st_mode) == 0o600
    assert secret.decode() not in up.said
    assert [path.name for path in home.root.rglob("*") if path.is_file() and secret in path.read_bytes()] == ["secret"]
    arguments = [path.read_bytes() for path in processes_of(home)]
    assert len(arguments) > 3
    assert not [words for words in arguments if secret in words]
    for url in (
        f"{up.prefect}/admin/settings",
        f"{up.mlflow}/nights/",
        f"{up.mlflow}/api/2.0/mlflow/experiments/get?experiment_id=0",
        up.mlflow,
    ):
        assert httpx.get(url).status_code == 401
        assert httpx.get(url, auth=("clawpipe", "guess")).status_code == 401
    assert up.ask(f"{up.mlflow}/api/2.0/mlflow/experiments/get?experiment_id=0")["experiment"]["experiment_id"] == "0"


@pytest.mark.slow
def test_a_home_is_backed_up_while_its_services_run(up, tmp_path):
    backup = tmp_path / "backup"
    shell(section("backup.md", "Back up"), CLAWPIPE_HOME=str(up.home.root), BACKUP=str(backup))
    assert (backup / "secret").read_text() == up.secret + "\n"
    for database, table in (("mlflow/mlflow.db", "experiments"), ("prefect/prefect.db", "deployment")):
        with closing(sqlite3.connect(backup / database)) as connection:
            assert connection.execute("pragma integrity_check").fetchall() == [("ok",)]
            assert connection.execute(f"select count(*) from {table}").fetchone()[0] > 0  # what a plain copy has only in its log
    assert open_to_others(backup) == []


@pytest.mark.slow
def test_up_and_down(up):
    url, mlflow = up.prefect, up.mlflow
    assert url in up.said
    assert answers(f"{mlflow}/health")
    pages = httpx.get(f"{mlflow}/nights/", auth=("clawpipe", up.secret.partition(":")[2]))
    assert "night" in pages.text.partition("</title>")[0]
    assert f"Nights    {mlflow}/nights/" in up.said
    nightly = up.ask(f"{url}/deployments/name/nightly-retrain/nightly")
    assert nightly["work_pool_name"] == "clawpipe"
    assert nightly["parameters"] == {"config": f"{up.home.root.parent}/night.yaml", "overrides": ["seed=3"]}
    [step] = nightly["pull_steps"]
    assert step["prefect.deployments.steps.set_working_directory"] == {"directory": str(stack.project_directory())}
    assert f"Nightly   {up.home.root.parent}/night.yaml -o seed=3\n" in up.said
    logs = {log.name for log in (up.home.root / "logs").iterdir()}
    assert logs == {"prefect-server.log", "mlflow-server.log", "worker.log", "watcher.log"}

    second = subprocess.run(CLI, env=os.environ | {"CLAWPIPE_HOME": str(up.home.root)}, capture_output=True, text=True, timeout=60)
    assert second.returncode == 75
    assert str(up.process.pid) in second.stderr

    up.process.send_signal(signal.SIGTERM)
    rest, _ = up.process.communicate(timeout=60)
    assert (up.process.returncode, rest.strip()) == (0, "stopped")
    assert announced_url(up.home) is None
    assert all(is_free(int(address.rpartition(":")[2])) for address in (url.removesuffix("/api"), mlflow))
    assert open_to_others(up.home.root) == []


def processes_of(home: Home) -> list[Path]:
    """Command lines of what runs for the home, whoever started it."""
    mark = f"{home.root}".encode()
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):  # it has ended
            if mark in path.read_bytes():
                found.append(path.with_name("cmdline"))
    return found
