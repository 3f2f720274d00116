"""The Prefect API that a night reports to: the configured one, else a server of our own for as long as the night runs."""

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

from clawpipe.errors import DataError
from clawpipe.services.secret import home_secret
from clawpipe.services.service import LOOPBACK, Service, answers, free_port, require_answer, running
from clawpipe.store.files import write_atomic
from clawpipe.store.home import Home
from clawpipe.store.sqlite import damage

START_SECONDS = 180.0  # an empty database on a busy machine takes longest; 3-10 s are usual
LOGGING_CONFIG = Path(__file__).with_name("logging.yaml")
_QUIET = {  # nothing leaves the machine, nothing is advertised
    "DO_NOT_TRACK": "1",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "PREFECT_SERVER_UI_SHOW_PROMOTIONAL_CONTENT": "false",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "HF_HUB_DISABLE_TELEMETRY": "1",
}
# What `clawpipe up` has scheduled is not the business of a server that lives for one night.
_ONE_NIGHT = {
    "PREFECT_SERVER_SERVICES_SCHEDULER_ENABLED": "false",
    "PREFECT_SERVER_SERVICES_LATE_RUNS_ENABLED": "false",
    "PREFECT_SERVER_SERVICES_TRIGGERS_ENABLED": "false",
}


class Api(NamedTuple):
    """A Prefect API in reach.

    `private` is ours alone and ends with us; of a `configured` one the user's own Prefect settings stay in force.
    """

    url: str
    private: bool
    configured: bool = False
    service: Service | None = None  # the private one


@contextmanager
def prefect_api(home: Home) -> Iterator[Api]:
    """The configured API, or that of `clawpipe up` on this home, or a server started for the length of the block.

    Where the configured API is that of `clawpipe up`, the home's secret is known; nobody needs to export it.

    Raises:
        BusyError: the configured one does not answer; or our own does not start, then the message shows its log's end.
        DataError: the database of our own is damaged.
    """
    configured, announced = configured_url(), announced_url(home)
    if configured and configured.rstrip("/") != announced:
        fix = "start it, or unset PREFECT_API_URL: a night then starts a server of its own"
        require_answer(configured, "the Prefect server", fix)
        yield Api(configured, private=False, configured=True)
    elif announced:
        yield Api(announced, private=False)
    else:
        with server(home, free_port(), _ONE_NIGHT) as (service, url):
            yield Api(url, private=True, service=service)


@contextmanager
def server(home: Home, port: int, settings: dict[str, str] | None = None) -> Iterator[tuple[Service, str]]:
    """A healthy Prefect server on a loopback port, with its database in the home. It asks for the home's secret.

    Yields:
        the service, and the URL of its API.
    """
    url = f"http://{LOOPBACK}:{port}/api"
    home.prefect.mkdir(parents=True, exist_ok=True)
    env = _own_settings(home) | {
        "PREFECT_API_URL": url,
        "PREFECT_UI_API_URL": "/api",  # under whichever of its names the page was opened
        "PREFECT_SERVER_API_HOST": LOOPBACK,
        "PREFECT_SERVER_API_PORT": str(port),
        "PREFECT_SERVER_API_AUTH_STRING": home_secret(home),
        "PREFECT_SERVER_CORS_ALLOWED_ORIGINS": f"http://{LOOPBACK}:{port}",
        "PREFECT_SERVER_CSRF_PROTECTION_ENABLED": "true",
    }
    require_whole(home)
    address = ["--host", LOOPBACK, "--port", str(port)]
    command = [sys.executable, "-m", "uvicorn", "--factory", "flows.apps:prefect", *address, "--log-level", "warning"]
    with running("Prefect server", command, logs(home) / "prefect-server.log", env | (settings or {})) as service:
        service.wait_healthy(f"{url}/health", START_SECONDS)
        yield service, url


def require_whole(home: Home) -> None:
    """Raise where the database of the home's own server is damaged.

    Raises:
        DataError: it says what to do.
    """
    database = home.prefect / "prefect.db"
    if database.exists() and (found := damage(database)):
        fix = "remove it: it holds the history of runs and no result, and the next server makes a new one"
        raise DataError(f"Prefect's database is damaged: {found}", str(database), fix)


def environment(home: Home, api: Api, log: Path | None = None) -> dict[str, str]:
    """What a process that runs the flow must have in its environment before it imports Prefect.

    Args:
        log: where Prefect and the libraries log; their console stays silent then.
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
    """Let Prefect be imported without a trace: on import it makes its home directory, for whose parents it does not care, sends
    telemetry and prints a notice about it."""
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
    """Prefect's settings in the home, whatever profile the user has chosen elsewhere, and what its servers ask for."""
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
    """Where services log."""
    return home.root / "logs"


def configured_url() -> str | None:
    """PREFECT_API_URL of the environment, else that of Prefect's active profile."""
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


def announce(home: Home, url: str) -> None:
    """Let nights of this home find a long-lived server: two servers on one SQLite database would lock each other out."""
    write_atomic(_announcement(home), json.dumps({"api_url": url, "home": str(home.root)}).encode())


def announced_url(home: Home) -> str | None:
    """The API that `announce` named, if it still answers. In a copy of a home it is the other home's."""
    try:
        announced = json.loads(_announcement(home).read_bytes())
        url = announced["api_url"] if announced["home"] == str(home.root) else None
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return url if url and answers(f"{url}/health") else None


def _announcement(home: Home) -> Path:
    return home.prefect / "clawpipe-server.json"
