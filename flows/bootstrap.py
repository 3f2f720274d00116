"""Prepare the Prefect API for nights: limit, work pool, automation. A second run changes nothing.

`python -m flows.bootstrap QUEUE ... -- DEPLOYMENT ...` prepares a server that has just started, for `clawpipe up`, and the
registry's database, and removes the nights that are not among these deployments.
"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Collection, Sequence
from contextlib import suppress
from datetime import timedelta
from uuid import UUID

import httpx
from prefect.automations import Automation
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.actions import GlobalConcurrencyLimitUpdate, WorkPoolCreate
from prefect.client.schemas.filters import (
    DeploymentFilter,
    DeploymentFilterTags,
    FlowFilter,
    FlowFilterName,
    FlowRunFilter,
    FlowRunFilterState,
    FlowRunFilterStateType,
    TaskRunFilter,
    TaskRunFilterId,
    TaskRunFilterState,
    TaskRunFilterStateType,
)
from prefect.client.schemas.objects import TERMINAL_STATES, StateType
from prefect.client.schemas.sorting import FlowRunSort
from prefect.events.actions import ActionTypes, ChangeFlowRunState
from prefect.events.schemas.automations import EventTrigger, Posture
from prefect.events.schemas.events import ResourceSpecification
from prefect.events.worker import EventsWorker
from prefect.exceptions import ObjectAlreadyExists, ObjectNotFound
from prefect.logging.handlers import APILogWorker
from prefect.states import Crashed

from clawpipe.core.store.home import Home
from clawpipe.core.system.processes import quick_exit
from clawpipe.record.registry.client import changes
from clawpipe.record.registry.tracking import Tracking
from flows.runners import PrefectRunner
from tasks.accelerators import GPU_LIMIT

FLOW, INGEST = "nightly-retrain", "ingest"
WORK_POOL = "clawpipe"
NIGHTS = "nights"  # the work queue of prefect.yaml
ZOMBIES = "clawpipe-crash-runs-without-heartbeat"
UNSTARTED = "clawpipe-retry-runs-that-do-not-start"
_TAGS = ("clawpipe", "nightly")
_OWN_NAME = re.compile(r"(nightly|on-demand)(-.+)?")  # of deployments that `clawpipe up` makes, see flows.deployments
_MANY = 100
_RECORD_SECONDS = 10.0  # usually one
_POLL_SECONDS = 0.3
_START = timedelta(minutes=10)  # a busy machine takes a minute from Pending to Running
_SILENCE = timedelta(seconds=90)  # three heartbeats of PREFECT_FLOWS_HEARTBEAT_FREQUENCY=30


def prepare_limit(*, fresh_server: bool) -> bool:
    """Make the `gpu` concurrency limit, which heavy steps of this machine hold one at a time. One that exists keeps its number.

    Args:
        fresh_server: nobody can hold a slot yet. A server forgets leases when it ends but not the slots they took, so a
            night killed together with its server would hold the limit for ever.

    Returns:
        whether the limit was made.
    """
    with get_client(sync_client=True) as client:
        try:
            client.read_global_concurrency_limit_by_name(GPU_LIMIT)
        except ObjectNotFound:
            client.upsert_global_concurrency_limit_by_name(GPU_LIMIT, limit=1)
            return True
        for limit in client.read_global_concurrency_limits(limit=_MANY) if fresh_server else ():
            if limit.name == GPU_LIMIT or limit.name.startswith(f"{GPU_LIMIT}-"):  # or of a cluster
                client.update_global_concurrency_limit(limit.name, GlobalConcurrencyLimitUpdate(active_slots=0))
        return False


def crash_stale_runs() -> None:
    """Mark as crashed the runs that a freshly started server finds running: their processes are gone.

    A run left running would hold the only slot of its queue or deployment, and none would start after it.
    """
    under_way = FlowRunFilter(state=FlowRunFilterState(type=FlowRunFilterStateType(any_=[StateType.RUNNING, StateType.PENDING])))
    with get_client(sync_client=True) as client:
        runs = client.read_flow_runs(
            flow_filter=FlowFilter(name=FlowFilterName(any_=[FLOW, INGEST])),
            flow_run_filter=under_way,
            sort=FlowRunSort.START_TIME_DESC,
            limit=_MANY,
        )
        for run in runs:
            client.set_flow_run_state(run.id, Crashed(message="its process ended together with the server"))


def prepare_night(*, fresh_server: bool) -> None:
    """Prepare the API for `clawpipe run`."""
    prepare_limit(fresh_server=fresh_server)
    if fresh_server:
        crash_stale_runs()


def prepare_services(*, fresh_server: bool, queues: Sequence[str] = (NIGHTS,)) -> dict[str, bool]:
    """Prepare a long-lived server and its worker: the limit, the work pool with its queues, and the automations against runs
    that died. Existing ones stay.

    Args:
        queues: work queues of which one run at a time starts.

    Returns:
        for each object by name, whether it was made.
    """
    if fresh_server:
        crash_stale_runs()
    made = {f"concurrency limit {GPU_LIMIT}": prepare_limit(fresh_server=fresh_server)}
    with get_client(sync_client=True) as client:
        made[f"work pool {WORK_POOL}"] = _make_pool(client)
        made |= {f"work queue {name}": _make_queue(client, name) for name in queues}
        automations = [one for one in (_crash_zombies(), _retry_unstarted()) if not client.read_automations_by_name(one.name)]
    for one in automations:
        one.create()
    new = {one.name for one in automations}
    return made | {f"automation {name}": name in new for name in (ZOMBIES, UNSTARTED)}


def _make_pool(client: SyncPrefectClient) -> bool:
    try:
        client.create_work_pool(WorkPoolCreate(name=WORK_POOL, type="process"))
    except ObjectAlreadyExists:
        return False
    return True


def _make_queue(client: SyncPrefectClient, name: str) -> bool:
    if any(queue.name == name for queue in client.read_work_queues(WORK_POOL)):
        return False
    client.create_work_queue(name, work_pool_name=WORK_POOL, concurrency_limit=1)
    return True


def prepare_registry() -> None:
    """Create the database of runs and models before a server opens it."""
    with changes(Tracking.of(Home.from_env(), model_name="none")):
        pass


def drain(*, ending_server: bool = False) -> None:
    """Send the logs and events that background threads still hold. Call it while the server still runs.

    Args:
        ending_server: the server is about to end. It has taken the events, but records task runs later, and forgets what it has not
            recorded; so wait for it.
    """
    APILogWorker.drain_all(at_exit=False)
    EventsWorker.drain_all(at_exit=False)
    if ending_server and PrefectRunner.ended:
        _await_recorded(list(PrefectRunner.ended))


def _await_recorded(task_runs: list[UUID]) -> None:
    """Return when the server has recorded that these task runs ended, and so all before them; or after _RECORD_SECONDS.

    A server that does not answer ends the wait: its records are for Prefect's pages, and no night fails for lack of them.
    """
    ended = TaskRunFilter(
        id=TaskRunFilterId(any_=task_runs), state=TaskRunFilterState(type=TaskRunFilterStateType(any_=list(TERMINAL_STATES)))
    )
    deadline = time.monotonic() + _RECORD_SECONDS
    with suppress(httpx.HTTPError), get_client(sync_client=True) as client:
        while len(client.read_task_runs(task_run_filter=ended)) < len(task_runs) and time.monotonic() < deadline:
            time.sleep(_POLL_SECONDS)


def remove_deployments(kept: Collection[str]) -> list[str]:
    """Remove nights that an earlier `clawpipe up` deployed for other models or by other names: they would go on by the clock.

    Args:
        kept: names of the deployments that are wanted.

    Returns:
        the names of those that were removed; what users have deployed by other names stays.
    """
    tagged = DeploymentFilter(tags=DeploymentFilterTags(all_=list(_TAGS)))
    with get_client(sync_client=True) as client:
        found = client.read_deployments(flow_filter=FlowFilter(name=FlowFilterName(any_=[FLOW])), deployment_filter=tagged)
        gone = [one for one in found if _OWN_NAME.fullmatch(one.name) and one.name not in kept]
        for one in gone:
            client.delete_deployment(one.id)
    return sorted(one.name for one in gone)


def _crash_zombies() -> Automation:
    """Return an automation that marks a night as crashed when its heartbeats stop: a killed flow stays Running otherwise.

    It waits from a night's start, which the server itself records: a night killed in its first seconds has sent no heartbeat. So
    every night has to send them, as `clawpipe run` and the deployments of prefect.yaml do.

    It watches nights only: other flows may send heartbeats more rarely than it waits, and of runs of seconds heartbeats may arrive
    after their end. The slot of a killed `ingest` is free again when its lease ends.
    """
    actions: list[ActionTypes] = [ChangeFlowRunState(name=None, state=StateType.CRASHED, message="missing heartbeats", force=False)]
    return Automation(
        name=ZOMBIES,
        description="A run whose process was killed sends no heartbeat any more.",
        trigger=EventTrigger(
            after={"prefect.flow-run.Running", "prefect.flow-run.heartbeat"},
            expect={"prefect.flow-run.*"},
            match=ResourceSpecification({"prefect.resource.id": ["prefect.flow-run.*"]}),
            match_related=ResourceSpecification({"prefect.resource.role": "flow", "prefect.resource.name": FLOW}),
            for_each={"prefect.resource.id"},
            posture=Posture.Proactive,
            threshold=1,
            within=_SILENCE,
        ),
        actions=actions,
    )


def _retry_unstarted() -> Automation:
    """Return an automation that has a run start again of which the worker died before it began: it stays Pending otherwise, and
    holds its queue for ever, since only a run that has begun sends heartbeats."""
    message = "the worker took it and did not start it"
    actions: list[ActionTypes] = [ChangeFlowRunState(name="AwaitingRetry", state=StateType.SCHEDULED, message=message, force=False)]
    return Automation(
        name=UNSTARTED,
        description="A run whose worker died before it started is given to the next one.",
        trigger=EventTrigger(
            after={"prefect.flow-run.Pending"},
            expect={"prefect.flow-run.*"},
            match=ResourceSpecification({"prefect.resource.id": ["prefect.flow-run.*"]}),
            match_related=ResourceSpecification({"prefect.resource.role": "flow", "prefect.resource.name": [FLOW, INGEST]}),
            for_each={"prefect.resource.id"},
            posture=Posture.Proactive,
            threshold=1,
            within=_START,
        ),
        actions=actions,
    )


if __name__ == "__main__":
    split = sys.argv.index("--")
    prepare_services(fresh_server=True, queues=sys.argv[1:split])
    remove_deployments(sys.argv[split + 1 :])
    prepare_registry()
    quick_exit(0)
