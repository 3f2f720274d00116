"""How the runs of a deployment share a home: one at a time, late ones as one, and what is no failure does not end as one.

The nights of a home and a model are in one work queue of Prefect's with a limit of one, so the others wait in it. What that queue
does not know, as a night by hand, ends with BusyError: the run is tried again later.
"""

from __future__ import annotations

import datetime
import os
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple, NoReturn
from uuid import UUID

from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.filters import (
    DeploymentFilter,
    DeploymentFilterId,
    FlowRunFilter,
    FlowRunFilterExpectedStartTime,
    FlowRunFilterState,
    FlowRunFilterStateType,
)
from prefect.client.schemas.objects import FlowRun, State, StateType
from prefect.client.schemas.sorting import FlowRunSort
from prefect.exceptions import Abort
from prefect.runtime import deployment, flow_run
from prefect.states import AwaitingRetry, Cancelled, Completed, Failed

from clawpipe.core.config.night import NightConfig
from clawpipe.core.store.home import Home
from clawpipe.core.store.identity import home_id
from clawpipe.core.system.machine import as_clawpipe_error
from clawpipe.errors import BusyError, ConfigError
from clawpipe.record.nights.files import night_label
from flows.datasets import NothingNewError
from flows.deployments import HOME_ID

_FIRST_DELAY, _LAST_DELAY = datetime.timedelta(minutes=1), datetime.timedelta(hours=1)
_LATE = datetime.timedelta(minutes=5)  # not less: where a start takes longer than the interval, each run would leave it to the next
_MANY = 200  # of Prefect's pages of runs
_BY_ITSELF = ("SCHEDULE", "AUTOMATION")  # what made a run that nobody asked for


class Due(NamedTuple):
    """When a run was to start, and the time zone of the schedule that says so; None: of no schedule."""

    moment: datetime.datetime
    zone: str | None


def in_queue(work: Callable[[], Any]) -> Any:
    """Do the work of a run. A deployed run ends in the state that says in one line what became of it:

    Completed where nothing new has come, AwaitingRetry where the home or a service is in use, Failed after an error, and Cancelled
    where it starts minutes late and a later run of the same deployment waits already, which then does the work of both. Each retry
    waits twice as long as the one before, an hour at most.
    """
    if not deployment.id:
        return work()
    try:
        _require_own_home()
        if newer := _newer():
            _end(Cancelled(message=f"the run of {newer:%Y-%m-%d %H:%M} UTC waits already, and does the work of this one"))
        return work()
    except NothingNewError as error:
        _end(Completed(message=error.what))
    except Exception as error:
        known = as_clawpipe_error(error)
        if known is None:
            raise
        line = " ".join(str(known).split())
        _end(_retry(line) if isinstance(known, BusyError) else Failed(message=line))


def go_on(given: NightConfig, settings: NightConfig) -> None:
    """Let a deployed run start again if the night that it has ended is an interrupted one of another day: its own is to come."""
    own = night_label(given, *due())
    if deployment.id and settings.night != own:
        _end(AwaitingRetry(scheduled_time=_now(), message=f"the interrupted night {settings.night} has ended; {own} comes next"))


def due() -> Due:
    """Return when this run was to start."""
    return Due(flow_run.scheduled_start_time, _zone(flow_run.id) if deployment.id else None)


@lru_cache(maxsize=1)
def _zone(run: str) -> str | None:
    """Return the time zone of the schedule that made a run."""
    with get_client(sync_client=True) as client:
        made = client.read_flow_run(UUID(run))
        schedules = client.read_deployment(made.deployment_id).schedules if made.auto_scheduled and made.deployment_id else []
    mine = [one for one in schedules if made.created_by and one.id == made.created_by.id] or schedules
    return next((getattr(one.schedule, "timezone", None) or "UTC" for one in mine), None)


def _require_own_home() -> None:
    wanted, own = os.environ.get(HOME_ID), Home.from_env()
    if wanted and wanted != home_id(own):
        what = f"this deployment is for the home with the id {wanted}, and the home of this worker is {home_id(own)}"
        raise ConfigError(what, str(own.root), "start the worker with CLAWPIPE_HOME set to that home")


def _newer() -> datetime.datetime | None:
    """Return when the newest waiting run of this deployment was due, if this one is late; the runs between are cancelled."""
    with get_client(sync_client=True) as client:
        mine = client.read_flow_run(UUID(flow_run.id))
        late = [one for one in _waiting(client) if _is_after(one, mine)] if _is_late(mine) else []
        for one in late[1:]:
            client.set_flow_run_state(one.id, Cancelled(message="a later run of this deployment does its work"))
    return late[0].expected_start_time if late else None


def _waiting(client: SyncPrefectClient) -> list[FlowRun]:
    """Return the runs of this deployment that could have started by now, the latest first."""
    return client.read_flow_runs(
        deployment_filter=DeploymentFilter(id=DeploymentFilterId(any_=[UUID(deployment.id)])),
        flow_run_filter=FlowRunFilter(
            state=FlowRunFilterState(type=FlowRunFilterStateType(any_=[StateType.SCHEDULED])),
            expected_start_time=FlowRunFilterExpectedStartTime(before_=_now()),  # pyright: ignore[reportArgumentType]  # a subclass in its declaration
        ),
        sort=FlowRunSort.EXPECTED_START_TIME_DESC,
        limit=_MANY,
    )


def _is_late(run: FlowRun) -> bool:
    due_at = run.expected_start_time
    return due_at is not None and _is_by_itself(run) and _now() - due_at > _LATE


def _is_after(one: FlowRun, other: FlowRun) -> bool:
    return _is_by_itself(one) and (one.expected_start_time, one.id) > (other.expected_start_time, other.id)


def _is_by_itself(run: FlowRun) -> bool:
    return bool(run.auto_scheduled or (run.created_by and run.created_by.type in _BY_ITSELF))


def _retry(why: str) -> State:
    delay = min(_FIRST_DELAY * 2 ** min(flow_run.run_count - 1, 10), _LAST_DELAY)
    return AwaitingRetry(scheduled_time=_now() + delay, message=why)


def _now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)


def _end(state: State) -> NoReturn:
    """End this run in a state. A flow that returned or raised would leave a traceback in Prefect's log."""
    with get_client(sync_client=True) as client:
        client.set_flow_run_state(UUID(flow_run.id), state)
    ended = Abort(state.message)
    ended.state = state  # pyright: ignore[reportAttributeAccessIssue]  # as Prefect's own signals have it
    raise ended
