"""What a Prefect server has scheduled: the next run of each deployment, and how the last one ended."""

from __future__ import annotations

import datetime
import re
import time
from pathlib import Path
from typing import NamedTuple

import httpx

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.core.basics.masking import without_secrets
from clawpipe.core.services.csrf import with_token
from clawpipe.core.services.secret import home_secret
from clawpipe.core.store.home import Home
from clawpipe.errors import BusyError

_SECONDS = 10.0
_POLL_SECONDS = 0.5
_QUEUE = re.compile(r"nights-([0-9a-f]{12})-(.+)")  # of a home's nights for a model, see flows.deployments
_FAILED = ["FAILED", "CRASHED"]
_ENDED = ["COMPLETED", *_FAILED, "CANCELLED"]
_RAISED = "Flow run encountered an exception: "  # before the words of an error that ended a run before its night


class Deployed(NamedTuple):
    """A deployment with an active schedule."""

    name: str
    next_run: datetime.datetime | None  # None: the server has scheduled none
    last_end: datetime.datetime | None
    last_state: str | None
    model: str | None  # that its nights are for
    why: str | None = None  # the last run failed, in a line

    def __str__(self) -> str:
        due = f"{self.next_run:%Y-%m-%d %H:%M} UTC" if self.next_run else "not scheduled"
        ended = f", last {self.last_state} at {self.last_end:%Y-%m-%d %H:%M} UTC" if self.last_end else ""
        return f"{self.name}: next {due}{ended}{f' ({self.why})' if self.why else ''}"


class NightQueue(NamedTuple):
    """What the name of a work queue says of the nights in it: the id of their home, and their model."""

    home: str
    model: str


def night_queue(name: str | None) -> NightQueue | None:
    """Return what the name of a work queue says; None if it is no queue of a home's nights."""
    found = _QUEUE.fullmatch(name or "")
    return NightQueue(*found.groups()) if found else None


def deployed(home: Home, api_url: str) -> list[Deployed]:
    """Return the deployments that the home's server should start by the clock, by name.

    Args:
        api_url: API of a server that asks for the home's secret.

    Raises:
        BusyError: the server does not answer, or does not know the secret.
    """
    user, _, password = home_secret(home).partition(":")
    try:
        with httpx.Client(base_url=api_url, auth=(user, password), timeout=_SECONDS) as client:
            with_token(client)
            found = client.post("/deployments/filter", json={}).raise_for_status().json()
            clocked = [one for one in found if not one["paused"] and any(each["active"] for each in one["schedules"])]
            return sorted(_deployed(client, one) for one in clocked)
    except httpx.HTTPError as error:
        raise BusyError(f"the Prefect server does not say what it has scheduled: {error}", api_url, "see its log") from None


def await_schedule(home: Home, api_url: str, seconds: float) -> list[Deployed]:
    """Return the scheduled deployments as soon as each has a next run, or as they are after `seconds`.

    Raises:
        BusyError: see `deployed`.
    """
    deadline = time.monotonic() + seconds
    while True:
        found = deployed(home, api_url)
        if all(one.next_run for one in found) or time.monotonic() > deadline:
            return found
        time.sleep(_POLL_SECONDS)


def scheduler_error(log: Path) -> str | None:
    """Return the last error of the scheduler in a Prefect server's log, else None; it says nothing anywhere else."""
    if not log.exists():
        return None
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    marks = (number for number in range(len(lines) - 1, -1, -1) if "ERROR" in lines[number] and "schedule" in lines[number])
    number = next(marks, None)
    if number is None:
        return None
    causes = (line for line in lines[number + 1 : number + 200] if "Error: " in line)
    return next(causes, lines[number]).strip()


def _deployed(client: httpx.Client, deployment: JsonObject) -> Deployed:
    identity, queue = deployment["id"], night_queue(deployment.get("work_queue_name"))
    now = datetime.datetime.now(datetime.UTC).isoformat()  # a run that was due earlier waits for its turn
    waits = _first_run(client, identity, ["SCHEDULED"], "EXPECTED_START_TIME_ASC", expected_start_time={"after_": now})
    ended = _first_run(client, identity, _ENDED, "END_TIME_DESC")
    return Deployed(
        deployment["name"],
        _time(waits["expected_start_time"]) if waits else None,
        _time(ended["end_time"]) if ended else None,
        ended["state_name"] if ended else None,
        queue.model if queue else None,
        _why(ended) if ended else None,
    )


def _why(run: JsonObject) -> str | None:
    """Return why a run failed, in the words of its error; None if it did not."""
    if run["state_type"] not in _FAILED:
        return None
    message = (run["state"]["message"] or "it says nothing").removeprefix(_RAISED)
    return without_secrets(message.splitlines()[0])


def _first_run(client: httpx.Client, deployment: str, states: list[str], sort: str, **more: object) -> JsonObject | None:
    query = {
        "deployments": {"id": {"any_": [deployment]}},
        "flow_runs": {"state": {"type": {"any_": states}}, **more},
        "sort": sort,
        "limit": 1,
    }
    return next(iter(client.post("/flow_runs/filter", json=query).raise_for_status().json()), None)


def _time(text: str | None) -> datetime.datetime | None:
    return datetime.datetime.fromisoformat(text).astimezone(datetime.UTC) if text else None
