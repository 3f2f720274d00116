"""Automations of Prefect's that tell the watcher of `clawpipe up` what no night can tell itself: that it never came, or is gone.

A deployment whose last ended run is older than 1.1 periods of its schedule is overdue. A run counts as ended when it is
Completed: with a verdict, or because nothing was new. The server watches, so that a dead worker is told, too.
"""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from itertools import pairwise
from typing import Any, cast

from prefect.automations import Automation
from prefect.blocks.webhook import Webhook
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import DeploymentFilter, DeploymentFilterTags
from prefect.client.schemas.responses import DeploymentResponse
from prefect.events.actions import CallWebhook
from prefect.events.schemas.automations import EventTrigger, Posture
from prefect.events.schemas.events import ResourceSpecification
from prefect.server.schemas.schedules import CronSchedule, IntervalSchedule, RRuleSchedule
from prefect.types import SecretDict
from pydantic import SecretStr, TypeAdapter

from flows.deployments import NIGHTLY, OF_MODEL

PERIODS = 1.1
_WATCHER = "clawpipe-watcher"  # block with the watcher's address
_OVERDUE, _CRASHED = "clawpipe-overdue-", "clawpipe-night-crashed"
_LEAST = timedelta(seconds=10)  # Prefect allows no less
_DATES = 64  # of each schedule: two months of nights, with a change of the clocks in some of them
_SCHEDULE = TypeAdapter[CronSchedule | IntervalSchedule | RRuleSchedule](CronSchedule | IntervalSchedule | RRuleSchedule)


def prepare_alarms(url: str, secret: str) -> dict[str, bool]:
    """Make the automations, and remove those of deployments that are gone or have no schedule any more.

    An automation that fits stays, and with it the time that it has waited for.

    Args:
        url: the watcher's address for alarms.
        secret: `user:password` that it asks for.

    Returns:
        for each automation by name, whether it was made.
    """
    headers = {"authorization": f"Basic {base64.b64encode(secret.encode()).decode()}", "content-type": "application/json"}
    block = cast(Any, Webhook(url=SecretStr(url), headers=SecretDict(headers)).save(_WATCHER, overwrite=True))
    wanted = {alarm.name: alarm for alarm in (_crashed(block), *_overdue(block))}
    kept = keep_alarms(wanted)
    for name in wanted.keys() - kept:
        wanted[name].create()
    return {name: name not in kept for name in wanted}


def keep_alarms(wanted: Mapping[str, Automation]) -> set[str]:
    """Remove all automations of clawpipe's but those that are as wanted; returns the names of these."""
    with get_client(sync_client=True) as client:
        known = [one for one in client.read_automations() if one.name.startswith((_OVERDUE, _CRASHED))]
        kept = {one.name: one.id for one in known if one.name in wanted and _facts(one) == _facts(wanted[one.name])}
        for one in known:
            if kept.get(one.name) != one.id:
                client.delete_automation(one.id)
    return set(kept)


def period(schedules: Sequence[Any]) -> timedelta | None:
    """Return the longest time from one run to the next in the coming weeks; None where nothing is scheduled.

    Args:
        schedules: a deployment's, as Prefect's client reads them.
    """
    dates = [_dates(one.schedule) for one in schedules if one.active]
    if not any(dates):
        return None
    until = min(some[-1] for some in dates if some)
    merged = sorted({date for some in dates for date in some if date <= until})
    return max((later - sooner for sooner, later in pairwise(merged)), default=None)


def _dates(schedule: Any) -> list[Any]:
    known = _SCHEDULE.validate_python(schedule.model_dump())
    return list(asyncio.run(known.get_dates(_DATES)))


def _overdue(block: Any) -> Iterator[Automation]:
    """Yield an automation for each deployment of nights that has a schedule."""
    with get_client(sync_client=True) as client:
        nightly = client.read_deployments(deployment_filter=DeploymentFilter(tags=DeploymentFilterTags(all_=[NIGHTLY])))
    for deployment in nightly:
        longest = None if deployment.paused else period(deployment.schedules)
        if longest:
            yield _overdue_one(deployment, max(longest * PERIODS, _LEAST), block)


def _overdue_one(deployment: DeploymentResponse, within: timedelta, block: Any) -> Automation:
    """Return the automation of a deployment. It fires when it is as old as `within` and no run has ended, or the last one is.

    An event that is both in `after` and in `expect` begins the time anew.
    """
    payload = {
        "kind": "night.overdue",
        "text": f"no run of the deployment {deployment.name} has ended, with a verdict or for want of news, for {_worded(within)}",
        "about": "{{ firing.id }}",
        **({"model": model} if (model := _model_of(deployment)) else {}),
    }
    return Automation(
        name=f"{_OVERDUE}{deployment.name}",
        description="No run has ended for 1.1 periods of the schedule.",
        trigger=EventTrigger(
            after={"prefect.flow-run.*"},
            expect={"prefect.flow-run.*"},
            match=ResourceSpecification({"prefect.resource.id": "prefect.flow-run.*", "prefect.state-type": "COMPLETED"}),
            match_related=ResourceSpecification(
                {"prefect.resource.role": "deployment", "prefect.resource.id": f"prefect.deployment.{deployment.id}"}
            ),
            posture=Posture.Proactive,
            threshold=1,
            within=within,
        ),
        actions=[CallWebhook(block_document_id=block, payload=json.dumps(payload))],
    )


def _model_of(deployment: DeploymentResponse) -> str | None:
    """Return the model in a deployment's tags; one that is alone has no such tag."""
    return next((tag.removeprefix(OF_MODEL) for tag in deployment.tags if tag.startswith(OF_MODEL)), None)


def _crashed(block: Any) -> Automation:
    """Return the automation that tells of a night whose process was killed."""
    payload = """{"kind": "night.crashed", "night": {{ flow_run.name | tojson }},
        "text": {{ ("the process is gone: " ~ flow_run.state.message) | tojson }}, "about": {{ flow_run.id | string | tojson }}}"""
    return Automation(
        name=_CRASHED,
        description="A night's process is gone.",
        trigger=EventTrigger(
            expect={"prefect.flow-run.*"},
            match=ResourceSpecification({"prefect.resource.id": "prefect.flow-run.*", "prefect.state-type": "CRASHED"}),
            match_related=ResourceSpecification({"prefect.resource.role": "flow", "prefect.resource.name": "nightly-retrain"}),
            for_each={"prefect.resource.id"},
            posture=Posture.Reactive,
            threshold=1,
            within=timedelta(0),
        ),
        actions=[CallWebhook(block_document_id=block, payload=payload)],
    )


def _facts(automation: Any) -> Any:
    """Return what decides what an automation does."""
    trigger, [action] = automation.trigger, automation.actions
    return trigger.within, trigger.match_related.model_dump(), action.block_document_id, action.payload, automation.enabled


def _worded(time: timedelta) -> str:
    seconds = time.total_seconds()
    return f"{seconds / 3600:.1f} hours" if seconds >= 3600 else f"{seconds:g} seconds"
