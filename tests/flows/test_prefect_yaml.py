"""prefect.yaml: what Prefect would not complain about, and that it deploys."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
import time
import zoneinfo
from datetime import datetime
from pathlib import Path
from uuid import UUID

import pytest
import yaml
from cronsim import CronSim
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.filters import DeploymentFilter, DeploymentFilterId
from prefect.client.schemas.objects import FlowRun
from prefect.events import emit_event

from clawpipe.core.config import load_config
from clawpipe.core.services.stack import project_directory
from flows import bootstrap
from flows.ingest import READY

PROJECT = project_directory()
DEPLOYMENT_KEYS = {  # of the documented prefect.yaml; any other is ignored in silence
    *("name", "version", "version_type", "tags", "description", "entrypoint", "parameters", "enforce_parameter_schema"),
    *("work_pool", "schedule", "schedules", "concurrency_limit", "triggers", "sla", "build", "push", "pull", "paused"),
}
FILE = yaml.safe_load((PROJECT / "prefect.yaml").read_text())
DEPLOYMENTS = {deployment["name"]: deployment for deployment in FILE["deployments"]}
FLOWS = {"nightly": bootstrap.FLOW, "on-demand": bootstrap.FLOW, "ingest": "ingest"}


@pytest.mark.parametrize("deployment", DEPLOYMENTS.values(), ids=DEPLOYMENTS)
def test_keys_are_known(deployment: dict):
    assert set(FILE) <= {"name", "prefect-version", "definitions", "build", "push", "pull", "deployments"}
    assert set(deployment) <= DEPLOYMENT_KEYS
    assert set(deployment["work_pool"]) <= {"name", "work_queue_name", "job_variables"}
    assert set(deployment.get("concurrency_limit", ())) <= {"limit", "collision_strategy", "grace_period_seconds"}
    assert deployment["work_pool"]["name"] == bootstrap.WORK_POOL


@pytest.mark.parametrize("deployment", DEPLOYMENTS.values(), ids=DEPLOYMENTS)
def test_entrypoint_is_a_flow_that_takes_the_parameters(deployment: dict):
    file, _, function = deployment["entrypoint"].partition(":")
    [definition] = [
        node for node in ast.parse((PROJECT / file).read_text()).body if isinstance(node, ast.FunctionDef) and node.name == function
    ]
    [decorator] = definition.decorator_list
    assert isinstance(decorator, ast.Call)
    assert ast.literal_eval(next(word.value for word in decorator.keywords if word.arg == "name")) == FLOWS[deployment["name"]]
    assert set(deployment["parameters"]) <= {argument.arg for argument in definition.args.args}


@pytest.mark.parametrize("deployment", DEPLOYMENTS.values(), ids=DEPLOYMENTS)
def test_schedule_and_config_are_readable(deployment: dict, monkeypatch: pytest.MonkeyPatch):
    for schedule in deployment["schedules"]:
        CronSim(schedule["cron"], datetime(2030, 1, 1, tzinfo=zoneinfo.ZoneInfo(schedule["timezone"])))
    monkeypatch.chdir(PROJECT)
    if "config" in deployment["parameters"]:
        load_config(Path(deployment["parameters"]["config"]), deployment["parameters"]["overrides"])


def _started_by_event(client: SyncPrefectClient, deployment: UUID) -> list[FlowRun]:
    """Send what the ingest deployment sends when enough data wait; return the runs that the server starts for it."""
    payload = {"waiting": 200, "night": "2026-11-23-abc"}
    only = DeploymentFilter(id=DeploymentFilterId(any_=[deployment]))
    for _ in range(300):  # the server reads a new automation, and then events, in its own time
        emit_event(READY, {"prefect.resource.id": "clawpipe.model.clawpipe-agent"}, payload=payload)
        bootstrap.drain()
        if runs := client.read_flow_runs(deployment_filter=only):
            return runs[:1]
        time.sleep(0.2)
    return []


@pytest.mark.slow
@pytest.mark.usefixtures("prefect_api")
def test_deploys_as_written():
    bootstrap.prepare_services(fresh_server=False)
    command = [sys.executable, "-m", "prefect", "deploy", "--all", "--no-prompt"]
    done = subprocess.run(command, cwd=PROJECT, env=os.environ, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    with get_client(sync_client=True) as client:
        deployment = client.read_deployment_by_name(f"{bootstrap.FLOW}/nightly")
        ingest = client.read_deployment_by_name("ingest/ingest")
        [queue] = [one for one in client.read_work_queues(bootstrap.WORK_POOL) if one.name == bootstrap.NIGHTS]
        [run] = _started_by_event(client, client.read_deployment_by_name(f"{bootstrap.FLOW}/on-demand").id)
    assert run.parameters == {"config": "configs/ongoing.yaml", "overrides": ["night=2026-11-23-abc"]}
    written = DEPLOYMENTS["nightly"]
    assert deployment.parameters == written["parameters"]
    assert deployment.enforce_parameter_schema
    assert (deployment.work_queue_name, queue.concurrency_limit) == (bootstrap.NIGHTS, 1)
    assert ingest.parameters == {"ready_at": 200}
    assert ingest.concurrency_options is not None
    assert ingest.concurrency_options.collision_strategy == "CANCEL_NEW"
    assert ingest.global_concurrency_limit is not None
    assert ingest.global_concurrency_limit.limit == 1
    [schedule] = [json.loads(item.schedule.model_dump_json()) for item in deployment.schedules]
    assert (schedule["cron"], schedule["timezone"]) == ("0 2 * * *", "UTC")
    assert deployment.pull_steps == [{"prefect.deployments.steps.set_working_directory": {"directory": str(PROJECT)}}]
