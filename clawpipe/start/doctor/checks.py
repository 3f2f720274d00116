"""Checks of what a night needs from the machine, for `clawpipe doctor`."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import pwd
import shlex
import shutil
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from clawpipe.core.basics.masking import without_secrets
from clawpipe.core.config.model import Model
from clawpipe.core.config.runtime import Runtime
from clawpipe.core.config.training import Train
from clawpipe.core.services.prefect_server import announced_url, configured_url, database_url, logs, require_intact, server
from clawpipe.core.services.schedules import await_schedule, scheduler_error
from clawpipe.core.services.service import answers
from clawpipe.core.store.home import Home
from clawpipe.core.store.open import open_store
from clawpipe.core.store.permissions import close, of_others
from clawpipe.core.system.ports import free_port
from clawpipe.data.capture.alarms import ALARMS, RECENT, alarms
from clawpipe.data.capture.records import Turn
from clawpipe.data.capture.segments import read_segment, segments, segments_dir
from clawpipe.errors import BusyError, ClawpipeError
from clawpipe.model.policy.agreement import OTHER_MODEL
from clawpipe.model.policy.spec import untrained_spec

State = Literal["ok", "warn", "fail"]
_GIB = 1 << 30
_DISK_WARN, _DISK_FAIL = 5 * _GIB, 1 * _GIB
_BASE = "smollm2-135m-instruct"
_SCHEDULE_SECONDS = 10.0  # a new deployment has its first runs after about five


@dataclass(frozen=True)
class Check:
    """The result of one check, and what to do if it is not ok."""

    name: str
    state: State
    found: str
    fix: str = ""


def run_checks(home: Home) -> Iterator[Check]:
    """Run every check in turn, the slow ones (torch, the Prefect server) last."""
    checks: list[Callable[[Home], Check]] = [
        check_python,
        check_packages,
        check_home,
        check_disk,
        check_store,
        check_mlflow,
        check_database,
        check_base_model,
        check_history,
        check_captured,
        check_torch,
        check_prefect,
        check_schedules,
    ]
    for check in checks:
        yield check(home)


def run_model_checks(model: Model, train: Train | None, runtime: Runtime) -> Iterator[Check]:
    """Compare the log-probs of engine and trainer with the base model's own; stops at a model that cannot be run."""
    from clawpipe.learn.evaluation.model_check import compare_model
    from clawpipe.play.workers.pool import WorkerPool

    with tempfile.TemporaryDirectory() as scratch, WorkerPool(runtime, Path(scratch)) as pool:
        try:
            for found, bound in compare_model(pool, Path(scratch), untrained_spec(model), train, runtime):
                well, text = (
                    found.within(bound),
                    f"rows {found.layout}, {found.largest:.2g} nats off at most, {found.mean:.2g} on average",
                )
                yield Check(found.part, "ok" if well else "fail", text, "" if well else OTHER_MODEL)
        except ClawpipeError as error:
            yield Check("model", "fail", error.what, error.fix)


def check_captured(home: Home) -> Check:
    """Look for signs in the last captured turns that nothing can be learned of them."""
    turns: list[Turn] = []
    for path in reversed(segments(segments_dir(home))):
        turns = [one.record for one in read_segment(path) if isinstance(one.record, Turn)] + turns
        if len(turns) >= RECENT:
            break
    wrong = [ALARMS[alarm] for alarm in alarms(turns)]
    found = "; ".join(wrong) or (f"{len(turns)} turns in the last segments" if turns else "nothing yet")
    return Check("captured", "warn" if wrong else "ok", found, "see docs/gateway.md" if wrong else "")


def check_python(_: Home) -> Check:
    wanted = importlib.metadata.metadata("clawpipe")["Requires-Python"]
    found = platform.python_version()
    fits = _fits(f"python{wanted}", found)
    return Check("python", "ok" if fits else "fail", found, "" if fits else f"install Python {wanted}")


def check_packages(_: Home) -> Check:
    wanted = [line for line in importlib.metadata.requires("clawpipe") or [] if "extra ==" not in line]
    wrong = [problem for line in wanted if (problem := _mismatch(line))]
    if wrong:
        return Check("packages", "fail", "; ".join(wrong), "pip install -e . -c constraints.txt")
    return Check("packages", "ok", f"{len(wanted)} requirements met")


def _mismatch(requirement: str) -> str | None:
    from packaging.requirements import Requirement

    name = Requirement(requirement).name
    try:
        found = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return f"{name} is not installed"
    return None if _fits(requirement, found) else f"{name} {found} is not {Requirement(requirement).specifier}"


def _fits(requirement: str, version: str) -> bool:
    from packaging.requirements import Requirement

    return Requirement(requirement).specifier.contains(version, prereleases=True)


def check_home(home: Home) -> Check:
    place = _existing(home.root)
    if not os.access(place, os.W_OK | os.X_OK):
        return Check("home", "fail", f"{place} is not writable", "set CLAWPIPE_HOME to a directory that you may write to")
    return _closed_home(home) if home.root.exists() else Check("home", "ok", str(home.root))


def _closed_home(home: Home) -> Check:
    """Close the home to other users: one of an earlier version is open to all of them."""
    closed, still_open = close(home.root)
    if foreign := of_others(home.root):
        (first, number), owner = foreign[0], home.root.stat().st_uid
        what = f"{home.root}: {len(foreign)} files and directories are not its owner's, as {first} ({_user(number)}'s)"
        return Check("home", "warn", what, f"sudo chown -R {_user(owner)} {shlex.quote(str(home.root))}")
    if still_open:
        fix = f"as their owner: chmod -R go-rwx {shlex.quote(str(home.root))}"
        return Check("home", "warn", f"{home.root}: {still_open} files and directories are open to other users", fix)
    mended = f": {closed} files and directories were open to other users, and are closed now" if closed else ""
    return Check("home", "ok", f"{home.root}{mended}")


def _user(number: int) -> str:
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:  # of a container, or of another machine
        return str(number)


def check_disk(home: Home) -> Check:
    free = shutil.disk_usage(_existing(home.root)).free
    state: State = "fail" if free < _DISK_FAIL else "warn" if free < _DISK_WARN else "ok"
    return Check("disk", state, f"{free / _GIB:.1f} GiB free", "" if state == "ok" else "make room, or move CLAWPIPE_HOME")


def check_store(home: Home) -> Check:
    remote = open_store(home).remote
    if remote is None:
        return Check("store", "ok", "in the home")
    try:
        remote.outdated()
    except ClawpipeError as error:
        return Check("store", "fail", f"{error.where}: {error.what}", error.fix)
    return Check("store", "ok", without_secrets(remote.url))


def check_mlflow(home: Home) -> Check:
    uri = os.environ.get("MLFLOW_TRACKING_URI", "")
    if uri.startswith(("http://", "https://")):
        well = answers(f"{uri.rstrip('/')}/health")
        return Check("mlflow", "ok" if well else "fail", "server answers" if well else "no answer", "" if well else "start it")
    if uri:
        return Check("mlflow", "ok", "the database in MLFLOW_TRACKING_URI")
    return _mlflow_file(home.mlflow / "mlflow.db")


def _mlflow_file(database: Path) -> Check:
    if not database.exists():
        return Check("mlflow", "ok", "the first night creates the database")
    try:
        with closing(sqlite3.connect(f"{database.as_uri()}?mode=ro", uri=True)) as connection:
            connection.execute("SELECT version_num FROM alembic_version").fetchone()
    except sqlite3.Error as error:
        return Check("mlflow", "fail", f"{database}: {error}", "restore it from a copy; without it registered models are lost")
    return Check("mlflow", "ok", str(database))


def check_database(_: Home) -> Check:
    kind = (database_url() or "sqlite").partition(":")[0].partition("+")[0]
    return Check("database", "ok", f"{kind} behind Prefect" + ("; enough for one worker" if kind == "sqlite" else ""))


def check_base_model(_: Home) -> Check:
    from clawpipe.model.policy.base import is_ready

    if is_ready(_BASE):
        return Check("base model", "ok", f"{_BASE} is in the cache")
    return Check("base model", "warn", f"{_BASE} is not in the cache", "the first night converts or downloads it, about 300 MB")


def check_torch(_: Home) -> Check:
    try:
        import torch
    except (ImportError, OSError) as error:
        return Check("torch", "fail", f"does not import: {error}", "pip install torch -c constraints.txt")
    if torch.cuda.is_available():
        return Check("torch", "ok", f"{torch.__version__} on {torch.cuda.get_device_name(0)}")
    return Check("torch", "ok", f"{torch.__version__} on CPU, {os.cpu_count()} cores")


def check_history(home: Home) -> Check:
    try:
        require_intact(home)
    except ClawpipeError as error:
        return Check("history", "fail", f"{error.where}: {error.what}", error.fix)
    return Check("history", "ok", "Prefect's database is intact, or the first night creates it")


def check_prefect(home: Home) -> Check:
    url = configured_url() or announced_url(home)
    if url:
        well = answers(f"{url.rstrip('/')}/health")
        fix = "" if well else "start it (`clawpipe up`), or unset PREFECT_API_URL: a night then starts a private server"
        return Check("prefect", "ok" if well else "fail", f"{without_secrets(url)} {'answers' if well else 'does not answer'}", fix)
    return _prefect_starts()


def check_schedules(home: Home) -> Check:
    """Ask the server of `clawpipe up` whether it has scheduled what is deployed: a scheduler that fails says so only in its log."""
    url = announced_url(home)
    if url is None:
        return Check("schedule", "warn", "`clawpipe up` does not run on this home", "start it: without it no night comes by itself")
    log = logs(home) / "prefect-server.log"
    try:
        found = await_schedule(home, url, _SCHEDULE_SECONDS)
    except BusyError as error:
        return Check("schedule", "fail", error.what, error.fix)
    if not found or not all(one.next_run for one in found):
        what = "; ".join(map(str, found)) or "no deployment has a schedule"
        return Check("schedule", "fail", what, scheduler_error(log) or f"see {log}; `clawpipe up` deploys the schedules anew")
    failed = any(one.why for one in found)
    fix = "`clawpipe runs list` shows the runs; a config that is not read is mended in its file" if failed else ""
    return Check("schedule", "warn" if failed else "ok", "; ".join(map(str, found)), fix)


def _prefect_starts() -> Check:
    with tempfile.TemporaryDirectory() as scratch:
        try:
            with server(Home(Path(scratch)), free_port()):
                return Check("prefect", "ok", "a server starts")
        except BusyError as error:
            return Check("prefect", "fail", error.what, error.fix)


def _existing(path: Path) -> Path:
    return next(place for place in (path, *path.parents) if place.exists())
