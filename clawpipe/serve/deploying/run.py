"""Put a registered version in service elsewhere, look at it, and end it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from clawpipe.core.store.artifacts import staging
from clawpipe.core.store.home import Home
from clawpipe.core.store.open import open_store
from clawpipe.core.system import faults
from clawpipe.core.system.processes import user_name
from clawpipe.errors import ConfigError, NotFoundError
from clawpipe.record.registry.deployed import Deployed, note_deployed
from clawpipe.record.registry.names import version_name
from clawpipe.record.registry.package import restore_policy
from clawpipe.record.registry.tracking import Tracking
from clawpipe.record.registry.versions import ModelVersionInfo, download, resolve
from clawpipe.serve.deploying.fireworks import Fireworks
from clawpipe.serve.deploying.plan import Plan, Target, Wanted
from clawpipe.serve.deploying.tinker import Tinker
from clawpipe.serve.export.files import export_version


def deploy(home: Home, name: str, target: Target, wanted: Wanted, agree: Callable[[Plan], bool]) -> tuple[Plan, Deployed | None]:
    """Put a version in service.

    Args:
        name: `NAME@3`, `NAME@champion`, or the `models:/` URI of a version.
        agree: is shown the plan, before anything is sent that costs money; only if it returns True does it go on.

    Returns:
        the plan, and what the registry keeps of it; None if it was not agreed to.

    Raises:
        NotFoundError, ConfigError, DataError, BusyError: see the registry and the services.
    """
    info = resolve(Tracking.of(home, "none"), name)
    with _opened(home, info, target, wanted, sends_files=True) as service:
        plan = service.plan()
        _require_no_other(info, plan)
        if not agree(plan):
            return plan, None
        _note(home, info, plan.record("starting"))
        faults.kill_point("deploy.noted")
        service.deploy(plan)
        return plan, _note(home, info, plan.record("deployed"))


def states(home: Home, name: str) -> list[tuple[Deployed, str]]:
    """Return a version's deployments, each with its present state at the service."""
    info = resolve(Tracking.of(home, "none"), name)
    return [(record, _state(home, info, record)) for record in info.deployed]


def end(home: Home, name: str, target: Target) -> Deployed:
    """End a version's deployment; one that has ended stays so.

    Raises:
        NotFoundError: the version was never deployed there.
    """
    info = resolve(Tracking.of(home, "none"), name)
    record = next((one for one in info.deployed if one.target == target), None)
    if record is None:
        raise NotFoundError(
            f"this version was never deployed to {target}", version_name(info.uri), "`clawpipe deployments` shows where it is"
        )
    if record.state == "ended":
        return record
    with _again(home, info, record) as service:
        service.end(record)
    return _note(home, info, record.model_copy(update={"state": "ended"}))


def _require_no_other(info: ModelVersionInfo, plan: Plan) -> None:
    """Raise if the version is in service there in another way: two deployments would both cost money."""
    new = plan.record("deployed")
    for record in info.deployed:
        same = (record.deployment, record.gpus, record.where) == (new.deployment, new.gpus, new.where)
        if record.target == plan.target and record.state != "ended" and not same:
            what = f"it is in service there already, by method {record.method} on {record.gpus or 'the default number of'} GPUs"
            raise ConfigError(
                what, version_name(info.uri), f"end that first: clawpipe undeploy {info.name}@{info.version} --from {plan.target}"
            )


def _state(home: Home, info: ModelVersionInfo, record: Deployed) -> str:
    if record.state == "ended":
        return "ended"
    with _again(home, info, record) as service:
        return service.state(record)


@contextmanager
def _again(home: Home, info: ModelVersionInfo, record: Deployed) -> Iterator[Fireworks | Tinker]:
    """Open the service as it was for this deployment."""
    url, _, account = record.where.partition(" ")
    wanted = Wanted(method="merged" if record.method == "merged" else "lora", project=account or None, url=url)
    with _opened(home, info, "tinker" if record.target == "tinker" else "fireworks", wanted, sends_files=False) as service:
        yield service


@contextmanager
def _opened(
    home: Home, info: ModelVersionInfo, target: Target, wanted: Wanted, *, sends_files: bool
) -> Iterator[Fireworks | Tinker]:
    with ExitStack() as stack:
        if target == "tinker":
            yield stack.enter_context(Tinker(info, wanted))
            return
        # in the store's staging area, not in home.work, which a night that ends removes
        scratch = stack.enter_context(staging(home.store, "deploy")) if sends_files else None
        files = _files(home, info, wanted, scratch / "files") if scratch else None
        yield stack.enter_context(Fireworks(info, wanted, files))


def _files(home: Home, info: ModelVersionInfo, wanted: Wanted, directory: Path) -> Path:
    """Write what is to be uploaded into a new directory."""
    if wanted.method == "merged":
        export_version(home, info.uri, "merged", directory)
    else:
        _write_adapter(home, info, wanted, directory)
    return directory


def _write_adapter(home: Home, info: ModelVersionInfo, wanted: Wanted, directory: Path) -> None:
    """Write the version's adapter, which names the base as the service does, and no path of this machine."""
    if not info.policy.adapter:
        raise ConfigError("this version is whole weights and has no adapter", "--method", "deploy it with --method merged")
    package, _ = download(Tracking.of(home, info.name), info.uri)
    store = open_store(home)
    shutil.copytree(store.require(restore_policy(store, package)), directory)
    config = directory / "adapter_config.json"
    told = json.loads(config.read_bytes()) | {"base_model_name_or_path": wanted.base}
    config.write_text(json.dumps(told, indent=2, sort_keys=True) + "\n")


def _note(home: Home, info: ModelVersionInfo, record: Deployed) -> Deployed:
    return note_deployed(Tracking.of(home, info.name), info.version, record, user_name())
