"""Runs of deployments in Prefect: those that wait for their turn, and the state of one that was stopped.

Prefect's own client takes seconds to import, more than a list may take; so its API is asked by plain requests.
"""

from __future__ import annotations

import datetime
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.core.config.load import load_config, shipped
from clawpipe.core.services.csrf import with_token
from clawpipe.core.services.prefect_server import announced_url, configured_url
from clawpipe.core.services.schedules import NightQueue, night_queue
from clawpipe.core.services.secret import home_secret
from clawpipe.core.store.home import Home
from clawpipe.core.store.identity import home_id
from clawpipe.errors import ClawpipeError
from clawpipe.record.runs.record import Run

_log = logging.getLogger(__name__)

FLOW = "nightly-retrain"
_WAITING, _AGAIN = ("SCHEDULED", "PENDING"), "AwaitingRetry"  # types of states, and a name
_MANY = 100
_ANSWER_SECONDS = 5.0


def waiting_runs(home: Home) -> list[Run]:
    """Return the runs of this home's nights that Prefect has queued and nobody has started, the one that is due last first.

    Among them are those that found the home in use and try again later. Runs that a schedule plans for later are no runs yet.
    Of a server that does not answer none are known, which is said in the log.
    """
    try:
        with _api(home) as client:
            queued = [] if client is None else [(found, night_queue(found.get("work_queue_name"))) for found in _queued(client)]
    except httpx.HTTPError as error:
        _log.warning("the Prefect server does not answer, so runs that wait there are not known: %s", type(error).__name__)
        return []
    return [_run(found, queue) for found, queue in queued if queue is None or queue.home == home_id(home)]


def cancel(home: Home, flow_run: str, message: str) -> bool:
    """Set a run in Prefect to Cancelled, whatever state it is in. Returns whether the server took it."""
    state = {"type": "CANCELLED", "name": "Cancelled", "message": message}
    try:
        with _api(home) as client:
            answer = client and client.post(f"/flow_runs/{flow_run}/set_state", json={"state": state, "force": True})
            return bool(answer and answer.is_success)
    except httpx.HTTPError:
        return False


def state_in_prefect(home: Home, flow_run: str) -> str | None:
    """Return the name of a run's state in Prefect, e.g. `Running`; None if it cannot be asked."""
    try:
        with _api(home) as client:
            answer = client and client.get(f"/flow_runs/{flow_run}")
            return answer.json()["state"]["name"] if answer and answer.is_success else None
    except (httpx.HTTPError, ValueError, KeyError, TypeError):
        return None


@contextmanager
def _api(home: Home) -> Iterator[httpx.Client | None]:
    """Yield a client of the server that nights of this home report to; None if there is no long-lived one."""
    announced = announced_url(home)
    url = configured_url() or announced
    if not url:
        yield None
        return
    # The home's own server asks for the home's secret, whatever other server the environment has a secret for.
    own = url.rstrip("/") == announced
    user, _, password = (home_secret(home) if own else os.environ.get("PREFECT_API_AUTH_STRING", "")).partition(":")
    auth = httpx.BasicAuth(user, password) if password else None
    with httpx.Client(base_url=url, auth=auth, timeout=_ANSWER_SECONDS) as client:
        with_token(client)
        yield client


def _queued(client: httpx.Client) -> list[JsonObject]:
    now = datetime.datetime.now(datetime.UTC).isoformat()
    wanted = [
        {"state": {"name": {"any_": [_AGAIN]}}},
        {"state": {"type": {"any_": _WAITING}}, "expected_start_time": {"before_": now}},
    ]
    found = {run["id"]: run for one in wanted for run in _runs(client, one)}
    return sorted(found.values(), key=lambda run: run["expected_start_time"], reverse=True)


def _runs(client: httpx.Client, wanted: JsonObject) -> list[JsonObject]:
    query = {"flows": {"name": {"any_": [FLOW]}}, "flow_runs": wanted, "sort": "EXPECTED_START_TIME_DESC", "limit": _MANY}
    return client.post("/flow_runs/filter", json=query).raise_for_status().json()


def _run(found: JsonObject, queue: NightQueue | None) -> Run:
    parameters = found.get("parameters") or {}
    config, overrides = str(parameters.get("config", "")), [str(word) for word in parameters.get("overrides") or []]
    return Run(
        id=found["id"],
        flow_run=found["id"],
        model=_model(config, overrides) or (queue.model if queue else ""),
        config=config,
        overrides=overrides,
        started_by="deployment",
        started=str(found["expected_start_time"])[:19] + "+00:00",
        state="pending",
        why=f"{found['name']} waits in Prefect: {found['state']['name']}",
    )


def _model(config: str, overrides: list[str]) -> str | None:
    """Return the model of a run's settings; None if they cannot be read, as on another machine."""
    with suppress(ClawpipeError):
        return load_config(shipped(Path(config)), overrides).registry.model_name
    return None
