"""What the Prefect API must hold before a night can run. Running it again changes nothing.

`python -m flows.bootstrap` prepares a server that has just started, for `clawpipe up`, and the registry's database.
"""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta

from prefect.automations import Automation
from prefect.client.orchestration import get_client
from prefect.client.schemas.actions import GlobalConcurrencyLimitUpdate, WorkPoolCreate
from prefect.client.schemas.filters import FlowFilter, FlowFilterName, FlowRunFilter, FlowRunFilterState, FlowRunFilterStateType
from prefect.client.schemas.objects import StateType
from prefect.client.schemas.sorting import FlowRunSort
from prefect.events.actions import ActionTypes, ChangeFlowRunState
from prefect.events.schemas.automations import EventTrigger, Posture
from prefect.events.schemas.events import ResourceSpecification
from prefect.events.worker import EventsWorker
from prefect.exceptions import ObjectAlreadyExists
from prefect.logging.handlers import APILogWorker
from prefect.states import Crashed

from clawpipe.registry.client import changes
from clawpipe.registry.tracking import Tracking
from clawpipe.store.home import Home
from tasks.step import GPU_LIMIT

FLOW = "nightly-retrain"
WORK_POOL = "clawpipe"
ZOMBIES = "clawpipe-crash-runs-without-heartbeat"
_MANY = 100
_SILENCE = timedelta(seconds=90)  # three heartbeats of PREFECT_FLOWS_HEARTBEAT_FREQUENCY=30


def prepare_limit(*, fresh_server: bool) -> None:
    """The `gpu` limit, one holder at a time, which heavy steps insist on.

    Args:
        fresh_server: nobody can hold a slot yet. A server forgets leases when it ends but not the slots they took, so a
            night killed together with its server would hold the limit for ever.
    """
    with get_client(sync_client=True) as client:
        client.upsert_global_concurrency_limit_by_name(GPU_LIMIT, limit=1)
        if fresh_server:
            client.update_global_concurrency_limit(GPU_LIMIT, GlobalConcurrencyLimitUpdate(active_slots=0))


def crash_stale_runs() -> None:
    """Mark the nights crashed that a server which has just started finds under way: who ran them is gone.

    Until then they would hold the deployment's only slot, and the next night would be cancelled.
    """
    under_way = FlowRunFilter(state=FlowRunFilterState(type=FlowRunFilterStateType(any_=[StateType.RUNNING, StateType.PENDING])))
    with get_client(sync_client=True) as client:
        runs = client.read_flow_runs(
            flow_filter=FlowFilter(name=FlowFilterName(any_=[FLOW])),
            flow_run_filter=under_way,
            sort=FlowRunSort.START_TIME_DESC,
            limit=_MANY,
        )
        for run in runs:
            client.set_flow_run_state(run.id, Crashed(message="its process ended together with the server"))


def prepare_night(*, fresh_server: bool) -> None:
    """What `clawpipe run` needs of its API."""
    prepare_limit(fresh_server=fresh_server)
    if fresh_server:
        crash_stale_runs()


def prepare_services(*, fresh_server: bool) -> None:
    """All that a long-lived server and its worker need: besides, the work pool and the automation against zombies."""
    prepare_night(fresh_server=fresh_server)
    with get_client(sync_client=True) as client:
        with suppress(ObjectAlreadyExists):
            client.create_work_pool(WorkPoolCreate(name=WORK_POOL, type="process"))
        if not client.read_automations_by_name(ZOMBIES):
            _crash_zombies().create()


def prepare_registry() -> None:
    """The database of runs and models, made whole before a server opens it."""
    with changes(Tracking.of(Home.from_env(), model_name="none")):
        pass


def drain() -> None:
    """Send the logs and events that background threads still hold: call it while the server is still there."""
    APILogWorker.drain_all(at_exit=False)
    EventsWorker.drain_all(at_exit=False)


def _crash_zombies() -> Automation:
    """Mark a night crashed that has sent heartbeats and then fell silent: a killed flow stays Running otherwise.

    Nights only: other flows on the server may send heartbeats more rarely than the automation waits.
    """
    actions: list[ActionTypes] = [ChangeFlowRunState(name=None, state=StateType.CRASHED, message="missing heartbeats", force=False)]
    return Automation(
        name=ZOMBIES,
        description="A run whose process was killed sends no heartbeat any more.",
        trigger=EventTrigger(
            after={"prefect.flow-run.heartbeat"},
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


if __name__ == "__main__":
    prepare_services(fresh_server=True)
    prepare_registry()
