"""The Prefect API that a night reports to: the configured one, else a private server that runs as long as the night."""

from __future__ import annotations

import json
import os
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from clawpipe.core.services.secret import home_secret
from clawpipe.core.services.service import Service, answers, require_answer, rotate, running
from clawpipe.core.store.files import InUseError, exclusive, write_atomic
from clawpipe.core.store.home import Home
from clawpipe.core.store.sqlite import damage
from clawpipe.core.system.ports import LOOPBACK, free_port
from clawpipe.errors import DataError

START_SECONDS = 180.0  # an empty database on a busy machine takes longest; 3-10 s are usual
LOGGING_CONFIG = Path(__file__).with_name("logging.yaml")
_QUIET = {  # no telemetry, no advertisements
    "DO_NOT_TRACK": "1",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "PREFECT_SERVER_UI_SHOW_PROMOTIONAL_CONTENT": "false",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "HF_HUB_DISABLE_TELEMETRY": "1",
}
# Task runs are recorded once a second: one by one they take two thirds of what a cached night costs the server. When it ends it
# forgets what it has not recorded: see flows.bootstrap.drain.
_RECORDER = {
    "PREFECT_SERVER_SERVICES_TASK_RUN_RECORDER_BATCH_SIZE": "100",
    "PREFECT_SERVER_SERVICES_TASK_RUN_RECORDER_FLUSH_INTERVAL": "1",
}
# What the servers of a home remember of past runs; the user's own values of these variables hold.
_RETENTION = {
    "PREFECT_SERVER_SERVICES_DB_VACUUM_ENABLED": "events,flow_runs",  # with their task runs, states, logs and artifacts
    "PREFECT_SERVER_SERVICES_DB_VACUUM_RETENTION_PERIOD": str(90 * 86_400),  # seconds since a run has ended
    "PREFECT_SERVER_EVENTS_RETENTION_PERIOD": "P7D",
}
_DATABASE = ("PREFECT_SERVER_DATABASE_CONNECTION_URL", "PREFECT_API_DATABASE_CONNECTION_URL")
_PATIENCE = ("PREFECT_SERVER_DATABASE_CONNECTION_TIMEOUT", "PREFECT_API_DATABASE_CONNECTION_TIMEOUT")
_BUSY_SECONDS = 20.0  # in which the server of `clawpipe up` answers on a busy machine; one that has ended refuses at once
_POSTGRES_SECONDS = 120  # Prefect's own 5 s end the server where a busy machine takes longer to connect
# A server that runs for one night must not start what `clawpipe up` has scheduled, and knows nothing of its workers.
_ONE_NIGHT = {
    "PREFECT_SERVER_SERVICES_SCHEDULER_ENABLED": "false",
    "PREFECT_SERVER_SERVICES_LATE_RUNS_ENABLED": "false",
    "PREFECT_SERVER_SERVICES_TRIGGERS_ENABLED": "false",
    "PREFECT_SERVER_SERVICES_FOREMAN_ENABLED": "false",
}


class Api(NamedTuple):
    """A Prefect API that answers.

    A `private` server belongs to this process and ends with it; a `configured` one keeps the user's Prefect settings.
    """

    url: str
    private: bool
    configured: bool = False
    service: Service | None = None  # of a private server


@contextmanager
def prefect_api(home: Home) -> Iterator[Api]:
    """Yield the configured API, or that of `clawpipe up` on this home, or a private server for the length of the block.

    If the configured API is that of `clawpipe up`, the home's secret is used without being exported.

    Raises:
        BusyError: the configured server does not answer; or the private one does not start, with the end of its log.
        DataError: the private server's database is damaged.
    """
    rotate(logs(home))
    configured, announced = configured_url(), announced_url(home)
    if configured and configured.rstrip("/") != announced:
        fix = "start it, or unset PREFECT_API_URL: a night then starts a private server"
        require_answer(configured, "the Prefect server", fix)
        yield Api(configured, private=False, configured=True)
    elif announced:
        yield Api(announced, private=False)
    else:
        with _own_server(home), server(home, free_port(), _ONE_NIGHT) as (service, url):
            yield Api(url, private=True, service=service)


@contextmanager
def _own_server(home: Home) -> Iterator[None]:
    """Let one process at a time have a server of its own: two on one SQLite database lock each other out."""
    try:
        with exclusive(home.locks / "own-server.lock", "Prefect's database"):
            yield
    except InUseError as error:
        fix = "wait until it ends; or start `clawpipe up` first: nights of several models then run side by side"
        raise InUseError(error.what, error.where, fix) from None


@contextmanager
def server(home: Home, port: int, settings: dict[str, str] | None = None) -> Iterator[tuple[Service, str]]:
    """Run a Prefect server on a loopback port, with its database in the home; it asks for the home's secret. Yields when healthy.

    Yields:
        the service, and the URL of its API.
    """
    url = f"http://{LOOPBACK}:{port}/api"
    home.prefect.mkdir(parents=True, exist_ok=True)
    env = _own_settings(home) | {
        "PREFECT_API_URL": url,
        "PREFECT_UI_API_URL": "/api",  # relative, so that the page works under every name of the server
        "PREFECT_SERVER_API_HOST": LOOPBACK,
        "PREFECT_SERVER_API_PORT": str(port),
        "PREFECT_SERVER_API_AUTH_STRING": home_secret(home),
        "PREFECT_SERVER_CORS_ALLOWED_ORIGINS": f"http://{LOOPBACK}:{port}",
        "PREFECT_SERVER_CSRF_PROTECTION_ENABLED": "true",
        **_RECORDER,
        **{name: os.environ.get(name, value) for name, value in _RETENTION.items()},
        **_patience(),
    }
    require_intact(home)
    address = ["--host", LOOPBACK, "--port", str(port)]
    command = [sys.executable, "-m", "uvicorn", "--factory", "flows.apps:prefect", *address, "--log-level", "warning"]
    with running("Prefect server", command, logs(home) / "prefect-server.log", env | (settings or {})) as service:
        service.wait_healthy(f"{url}/health", START_SECONDS)
        yield service, url


def database_url() -> str | None:
    """Return the URL of the database that the user has chosen for Prefect's server, which may hold a password; None: the home's."""
    return next(filter(None, map(os.environ.get, _DATABASE)), None)


def _patience() -> dict[str, str]:
    """Return how long the server may take to connect to Postgres, unless the user has said so."""
    if any(name in os.environ for name in _PATIENCE) or not (database_url() or "").startswith("postgres"):
        return {}
    return {_PATIENCE[0]: str(_POSTGRES_SECONDS)}


def require_intact(home: Home) -> None:
    """Raise if the database of the home's server is damaged.

    Raises:
        DataError: it says what to do.
    """
    database = home.prefect / "prefect.db"
    if database.exists() and (found := damage(database)):
        fix = "remove it: it holds the history of runs, but no results, and the next server creates a new one"
        raise DataError(f"Prefect's database is damaged: {found}", str(database), fix)


def environment(home: Home, api: Api, log: Path | None = None) -> dict[str, str]:
    """Return the variables that a process which runs the flow needs in its environment before it imports Prefect.

    Args:
        log: file for the logs of Prefect and the libraries, which then do not write to the console.
    """
    env = (_QUIET if api.configured else _own_settings(home)) | {
        "CLAWPIPE_HOME": str(home.root),
        "PREFECT_API_URL": api.url,
        "PREFECT_LOCAL_STORAGE_PATH": str(home.steps),
        "PREFECT_FLOWS_HEARTBEAT_FREQUENCY": "30",
    }
    return env | (_silent_console(log) if log else {})


@contextmanager
def no_api() -> Iterator[None]:
    """Let Prefect be imported without side effects: on import it creates its home directory with parents, sends telemetry and
    prints a notice about it."""
    known = dict(os.environ)
    with tempfile.TemporaryDirectory() as scratch:
        os.environ.update({"PREFECT_HOME": scratch} | known | _QUIET)
        try:
            yield
        finally:
            for name in {"PREFECT_HOME", *_QUIET} - known.keys():
                del os.environ[name]
            os.environ.update(known)


def _own_settings(home: Home) -> dict[str, str]:
    """Return settings that put Prefect into the home, whatever profile the user has chosen, with the secret of its servers."""
    return _QUIET | {
        "PREFECT_HOME": str(home.prefect),
        "PREFECT_PROFILE": "ephemeral",
        "PREFECT_API_AUTH_STRING": home_secret(home),
        "PREFECT_CLIENT_CSRF_SUPPORT_ENABLED": "true",
    }


def _silent_console(log: Path) -> dict[str, str]:
    return {
        "PREFECT_LOGGING_SETTINGS_PATH": str(LOGGING_CONFIG),
        "PREFECT_LOGGING_HANDLERS_FILE_FILENAME": str(log),
        "PREFECT_LOGGING_TO_API_WHEN_MISSING_FLOW": "ignore",
        "MLFLOW_CONFIGURE_LOGGING": "false",
        "HF_HUB_DISABLE_PROGRESS_BARS": "1",
        "TQDM_DISABLE": "1",
        "TRANSFORMERS_NO_ADVISORY_WARNINGS": "1",
    }


def logs(home: Home) -> Path:
    """Return the directory of the services' logs."""
    return home.root / "logs"


def configured_url() -> str | None:
    """Return PREFECT_API_URL of the environment, else of Prefect's active profile."""
    return os.environ.get("PREFECT_API_URL") or _profile_settings().get("PREFECT_API_URL")


def _profile_settings() -> dict[str, str]:
    root = Path(os.environ.get("PREFECT_HOME") or "~/.prefect").expanduser()
    path = Path(os.environ.get("PREFECT_PROFILES_PATH") or root / "profiles.toml").expanduser()
    try:
        profiles = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, tomllib.TOMLDecodeError):
        return {}
    active = os.environ.get("PREFECT_PROFILE") or profiles.get("active", "")
    return profiles.get("profiles", {}).get(active, {})


def announce(home: Home, url: str, mlflow_url: str = "") -> None:
    """Record long-lived servers for this home: a night's own on the same SQLite database would lock Prefect's out.

    Args:
        url: of Prefect's API.
        mlflow_url: of MLflow's server, if one runs.
    """
    facts = {"api_url": url, "mlflow_url": mlflow_url, "home": str(home.root)}
    write_atomic(_announcement(home), json.dumps(facts).encode())


def announced_url(home: Home) -> str | None:
    """Return the API that `announce` recorded, if it still answers. In a copy of a home it is ignored."""
    url = announced(home, "api_url")
    return url if url and answers(f"{url}/health", _BUSY_SECONDS) else None


def announced(home: Home, name: str) -> str | None:
    """Return a fact that `announce` recorded of this home: `api_url` or `mlflow_url`."""
    try:
        facts = json.loads(_announcement(home).read_bytes())
        return facts[name] if facts["home"] == str(home.root) else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _announcement(home: Home) -> Path:
    return home.prefect / "clawpipe-server.json"
