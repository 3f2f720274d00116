"""Machines for machines.py: each has a network, processes, a host name and a /tmp of its own, and a cable to the hub.

All of them live in namespaces of the script's own (`in_namespaces`). So the host's network is not touched, root is not needed where
users may make namespaces, and whatever was started ends with the script. The hub holds the servers: Postgres, moto for S3, Prefect.
"""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import monotonic, sleep

import psycopg2

from clawpipe.core.services.service import Service, running, started

HUB, NETWORK = "10.77.0.1", "10.77.0.0/24"
ROOT = Path(__file__).parents[1]
POSTGRES, S3, PREFECT, DASK, RAY = 5432, 9000, 4200, 8786, 6379  # ports of the hub
_MARK = "CLAWPIPE_LAB"
_ALONE = ["--user", "--map-root-user", "--net", "--mount", "--uts", "--pid", "--mount-proc", "--fork", "--kill-child"]
_INSIDE = 'hostname "$1" && ip link set lo up && mount --bind "$2" /tmp && echo up && exec sleep infinity'
START_SECONDS = 900.0  # beside twenty busy processes


def in_namespaces() -> None:
    """Start this script anew in namespaces of its own, unless it is in them."""
    if _MARK not in os.environ:
        os.execvpe("unshare", ["unshare", *_ALONE, sys.executable, *sys.argv], os.environ | {_MARK: "yes"})


class Machine:
    """A machine with an address and a directory of its own.

    Args:
        number: from 2; the last part of its address.
    """

    def __init__(self, name: str, number: int, scratch: Path) -> None:
        self.name, self.address, self.scratch, self._cable = name, f"10.77.0.{number}", scratch, f"cable-{name}"
        (tmp := scratch / "tmp").mkdir(parents=True)
        alone = ["unshare", "--net", "--mount", "--uts", "--pid", "--mount-proc", "--fork", "--kill-child"]
        self._outer = subprocess.Popen([*alone, "bash", "-c", _INSIDE, "bash", name, str(tmp)], stdout=subprocess.PIPE)
        assert self._outer.stdout is not None
        assert self._outer.stdout.readline() == b"up\n"
        self._init = int(Path(f"/proc/{self._outer.pid}/task/{self._outer.pid}/children").read_text())
        _ip("link", "add", self._cable, "type", "veth", "peer", "name", "eth0", "netns", str(self._init))
        _ip("link", "set", self._cable, "master", "hub", "up")
        for words in (["addr", "add", f"{self.address}/24", "dev", "eth0"], ["link", "set", "eth0", "up"]):
            subprocess.run([*self._enter(), "ip", *words], check=True)

    def start(self, name: str, command: Sequence[str], **environment: str) -> Service:
        """Start a program on the machine, whose files for a while lie in its own /tmp whatever the caller's are."""
        own = environment | {"TMPDIR": "/tmp"}
        return started(name, [*self._enter(), *command], self.scratch / f"{name}.log", own)

    def kill(self, cable_first: bool = False) -> None:
        """End every process of the machine with SIGKILL, as the kernel does when the first one dies.

        cable_first: nobody is told that its connections have ended, as in a power cut.
        """
        if self._outer.poll() is None:
            if cable_first:
                _ip("link", "set", self._cable, "down")
            os.kill(self._init, signal.SIGKILL)
            self._outer.wait()

    def _enter(self) -> list[str]:
        return ["nsenter", "-t", str(self._init), "--net", "--mount", "--uts", "--pid", "--"]


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True)


@dataclass(frozen=True)
class Lab:
    """The hub and its servers; `environment` is what everybody needs to reach them."""

    directory: Path
    environment: Mapping[str, str]
    database: str

    def bucket(self) -> str:
        """Return the URL of a home that nobody has used."""
        import fsspec

        options = {"endpoint_url": self.environment["AWS_ENDPOINT_URL"], "key": "key", "secret": "secret"}
        fsspec.filesystem("s3", **options, skip_instance_cache=True).mkdir(name := f"home-{secrets.token_hex(8)}")
        return f"s3://{name}/agents"

    def registry(self) -> str:
        """Return the URI of an empty registry of MLflow's, copied from one whose tables are made."""
        name = f"mlflow_{secrets.token_hex(8)}"
        _ask(self.database, f"create database {name} template mlflow")
        return f"{self.database}/{name}"


@contextmanager
def lab(directory: Path) -> Iterator[Lab]:
    """Yield the hub with its servers."""
    _ip("link", "set", "lo", "up")
    _ip("link", "add", "hub", "type", "bridge")
    _ip("addr", "add", f"{HUB}/24", "dev", "hub")
    _ip("link", "set", "hub", "up")
    with ExitStack() as stack:
        database = stack.enter_context(_postgres(directory))
        _make_tables(f"{database}/mlflow")
        stack.enter_context(_server("moto", ["moto.server", "-H", HUB, "-p", str(S3)], directory, f"http://{HUB}:{S3}/moto-api/"))
        api = f"http://{HUB}:{PREFECT}/api"
        stack.enter_context(_prefect(directory, database, api))
        yield Lab(directory, _environment(api), database)


def _environment(api: str) -> dict[str, str]:
    storage = {"AWS_ENDPOINT_URL": f"http://{HUB}:{S3}", "AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret"}
    storage |= {"AWS_DEFAULT_REGION": "us-east-1", "AWS_CONFIG_FILE": os.devnull, "AWS_SHARED_CREDENTIALS_FILE": os.devnull}
    ray = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(), "RAY_USAGE_STATS_ENABLED": "0"}
    paths = {"PYTHONPATH": f"{ROOT}:{ROOT / 'benchmarks'}"}
    paths |= {"OMP_WAIT_POLICY": "passive"}  # threads that wait for one another take no time of a busy core
    return {**storage, **ray, **paths, "PREFECT_API_URL": api, "DO_NOT_TRACK": "1", "MLFLOW_DISABLE_TELEMETRY": "true"}


@contextmanager
def _postgres(directory: Path) -> Iterator[str]:
    """Run Postgres on the hub. Yields its URL, without a database; `prefect` and `mlflow` are there."""
    program = Path(shutil.which("postgres") or "postgres").resolve()
    other = ["unshare", "--user", "--map-user=1000", "--map-group=1000", "--"]  # it refuses to be root
    data, password = directory / "postgres", secrets.token_hex()
    (given := directory / "password").write_text(password)
    make = [str(program.with_name("initdb")), "-D", str(data), "-U", "postgres", "-A", "scram-sha-256", f"--pwfile={given}"]
    subprocess.run([*other, *make, "--no-sync"], check=True, capture_output=True)
    with (data / "pg_hba.conf").open("a") as rules:
        rules.write(f"host all all {NETWORK} scram-sha-256\n")
    serve = [str(program), "-D", str(data), "-p", str(POSTGRES), "-k", str(directory), "-h", HUB, "-c", "max_connections=300"]
    url = f"postgresql://postgres:{password}@{HUB}:{POSTGRES}"
    with running("Postgres", [*other, *serve], directory / "postgres.log", {}):
        wait_until(lambda: _answers(url), START_SECONDS)
        for name in ("prefect", "mlflow"):
            _ask(url, f"create database {name}")
        yield url


def wait_until(done: Callable[[], bool], seconds: float) -> None:
    deadline = monotonic() + seconds
    while not done():
        if monotonic() > deadline:
            raise SystemExit(f"a server did not start within {seconds:.0f} s")
        sleep(0.2)


def _answers(url: str) -> bool:
    try:
        _ask(url, "select 1")
    except psycopg2.OperationalError:
        return False
    return True


def _ask(url: str, query: str) -> None:
    with closing(psycopg2.connect(f"{url}/postgres")) as connection, connection.cursor() as cursor:
        connection.autocommit = True  # a database is not made in a transaction
        cursor.execute(query)


def _make_tables(uri: str) -> None:
    text = "import sys, mlflow; mlflow.set_tracking_uri(sys.argv[1]); mlflow.search_experiments()"
    subprocess.run([sys.executable, "-c", text, uri.replace("postgresql:", "postgresql+psycopg2:")], check=True)


@contextmanager
def _prefect(directory: Path, database: str, api: str) -> Iterator[Service]:
    settings = {
        "PREFECT_SERVER_DATABASE_CONNECTION_URL": f"{database.replace('postgresql:', 'postgresql+asyncpg:')}/prefect",
        "PREFECT_SERVER_DATABASE_CONNECTION_TIMEOUT": "120",
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        "PREFECT_HOME": str(directory / "prefect"),
        "PREFECT_API_URL": api,
    }
    command = ["prefect", "server", "start", "--host", HUB, "--port", str(PREFECT)]
    with _server("Prefect", command, directory, f"{api}/health", settings) as service:
        yield service


@contextmanager
def _server(
    name: str, module: list[str], directory: Path, health: str, settings: Mapping[str, str] | None = None
) -> Iterator[Service]:
    with running(name, [sys.executable, "-m", *module], directory / f"{name}.log", settings or {}) as service:
        service.wait_healthy(health, START_SECONDS)
        yield service
