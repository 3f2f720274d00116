"""Fixtures that several rooms share."""

from __future__ import annotations

import fcntl
import functools
import gc
import importlib
import locale
import math
import os
import re
import sys
import tempfile
import time
import uuid
import warnings
from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

import httpx
import pytest
from hypothesis import HealthCheck, settings
from xdist.remote import Producer
from xdist.scheduler import LoadFileScheduling

from clawpipe.core.services.prefect_server import Api, environment, server
from clawpipe.core.services.secret import home_secret
from clawpipe.core.services.service import Service, running
from clawpipe.core.store.home import Home
from clawpipe.core.system import processes
from clawpipe.core.system.ports import LOOPBACK, free_port
from clawpipe.core.system.quick_imports import quick_imports

# No test fails because the machine is busy.
settings.register_profile("clawpipe", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("clawpipe")
_SCRATCH = pytest.StashKey[tempfile.TemporaryDirectory]()


# All that tests take over from whoever calls them: where programs and scratch space are, and what computes. No more, so that no
# setting of the caller's, of any library, today's or tomorrow's, decides a test.
_TAKEN_OVER = re.compile(
    "PATH|TMPDIR|USER|LOGNAME|LD_LIBRARY_PATH|LD_PRELOAD|SSL_CERT_FILE|PYTEST_XDIST_.*|PYTEST_CURRENT_TEST"
    "|ATEN_CPU_CAPABILITY|MKL_.*|ONEDNN_.*|CUDA_VISIBLE_DEVICES|NVIDIA_.*|CLAWPIPE_(?:VLLM|HERMES|FIREWORKS)_PYTHON|CLAWPIPE_OPENCLAW"
)


_MEMORY = "/dev/shm"
_MEMORY_BYTES = 8 << 30  # a whole run leaves 2 GiB there


def _scratch_root() -> str | None:
    """Return a file system in memory, where no commit waits for a disk, if there is a roomy one; else None, the usual place."""
    if "TMPDIR" in os.environ or not os.path.isdir(_MEMORY):
        return None
    system = os.statvfs(_MEMORY)
    roomy = system.f_bavail * system.f_frsize > _MEMORY_BYTES
    return _MEMORY if roomy and not system.f_flag & os.ST_NOEXEC and os.access(_MEMORY, os.W_OK) else None


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--until", type=float, default=math.inf, help="when the last test may begin, in seconds since 1970")


def pytest_runtest_setup(item: pytest.Item) -> None:
    if time.time() > item.config.getoption("until"):
        pytest.skip("no time was left for it")


def pytest_configure(config: pytest.Config) -> None:
    """Nothing of the user's is read or written, whatever the environment, the home and the working directory."""
    root = _scratch_root()
    config.stash[_SCRATCH] = tempfile.TemporaryDirectory(dir=root)
    scratch = Path(config.stash[_SCRATCH].name)
    if root:  # for this process, xdist's workers and their children; a caller's TMPDIR stays, and keeps what tests leave
        os.environ["TMPDIR"] = tempfile.tempdir = str(scratch)
    ours = {
        "HOME": str(scratch),
        "PREFECT_HOME": str(scratch / "prefect"),  # Prefect makes it as soon as it is imported
        "CLAWPIPE_MODEL_CACHE": str(config.rootpath / ".pytest_cache" / "models"),  # kept: converting a real model takes a while
        "LC_ALL": "C.UTF-8",
        "TZ": "UTC",
        "TINKER_TELEMETRY": "0",  # its thread outlives the tests that use the library
        "OMP_WAIT_POLICY": "passive",  # threads that wait take no time from the other tests
    }
    kept = {name: value for name, value in os.environ.items() if _TAKEN_OVER.fullmatch(name)}
    os.environ.clear()
    os.environ.update(kept | ours)
    if registry := sys.modules.get("clawpipe.record.registry"):  # of folders on the command line the conftests come before this
        importlib.reload(registry)  # it sets what MLflow reads
    locale.setlocale(locale.LC_ALL, "C.UTF-8")
    time.tzset()
    os.chdir(config.rootpath)


# Files of half a minute and more, the longest first, so that no worker begins one when the others are about to end.
LONGEST = [
    *("cli/test_day.py", "flows/test_kill.py", "flows/test_night.py", "flows/test_sweep.py", "cli/test_browser.py"),
    "test_callers_environment.py",
    *("gateway/test_hostile.py", "curation/test_partitions.py", "gateway/test_following.py", "training/test_distributed.py"),
    *("benchmarks/test_tiny_benchmark.py", "policy/test_formats.py", "training/test_quantized.py"),
]
# Files that share what takes long to start run on one worker: the services of `clawpipe up`, an undisturbed night with its Prefect
# server, and another Prefect server.
TOGETHER = [
    ("cli/test_browser.py", "cli/test_up.py"),
    (
        *("flows/test_night.py", "flows/test_damage.py", "flows/test_backup.py", "flows/test_vllm_night.py"),
        *("flows/test_methods.py", "flows/test_judged_night.py", "flows/test_runs.py", "flows/test_figures.py"),
        *("flows/test_datasets.py", "flows/test_notices.py", "flows/test_traced_night.py"),
    ),
    (
        *("flows/test_sweep.py", "flows/test_postgres.py", "flows/test_alarms.py", "flows/test_mlflow_server.py"),
        *("flows/test_text_night.py", "flows/test_quantized_night.py", "flows/test_imported_night.py", "flows/test_agent_night.py"),
        *("flows/test_start.py", "flows/test_shared_night.py", "flows/test_terminal_night.py", "flows/test_prefect_yaml.py"),
        *("flows/test_conversation_night.py", "flows/test_reasoning_night.py", "flows/test_reviewed_night.py"),
        *("flows/test_swe_night.py", "flows/test_tinker_night.py", "flows/test_two_environments.py", "flows/test_users.py"),
        *("flows/test_bootstrap.py", "flows/test_ingest_flow.py", "services/test_prefect_server.py", "doctor/test_checks.py"),
        *("tasks/test_cache.py", "basics/test_masking.py", "test_wheel.py"),
    ),
]
_GROUPS = {f"tests/{file}": number for number, files in enumerate(TOGETHER) for file in files}


class Together(LoadFileScheduling):
    """Gives a worker all tests of a file, and of the files that share something with it."""

    def _split_scope(self, nodeid: str) -> str:
        file = super()._split_scope(nodeid)
        return f"together {_GROUPS[file]}" if file in _GROUPS else file


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> Together | None:
    return Together(config, log) if config.getoption("dist") == "loadfile" else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """The long files first; the others, and the tests of a file, stay in their order."""
    places = {config.rootpath / "tests" / file: place for place, file in enumerate(LONGEST)}
    items.sort(key=lambda item: places.get(item.path, len(places)))


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """What the tests import lives as long as they do: no collection of garbage walks it (every training run asks for one)."""
    with quick_imports():
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol() -> Generator[None, object, object]:
    """A night that runs in a test's own process keeps its files private; the tests after it have the usual umask."""
    usual = os.umask(0o077)
    os.umask(usual)
    try:
        return (yield)
    finally:
        os.umask(usual)


def pytest_unconfigure(config: pytest.Config) -> None:
    config.stash[_SCRATCH].cleanup()
    gc.unfreeze()  # DuckDB tells of all that nobody has collected in the end
    _collect_garbage()


def _collect_garbage() -> None:
    with warnings.catch_warnings(action="ignore", category=ResourceWarning):  # of tests that ignored them
        gc.collect()


@pytest.fixture(scope="module", autouse=True)
def frozen_garbage() -> None:
    """What earlier files have imported and kept is walked once: each training run asks for a collection, which took a second."""
    _collect_garbage()
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def one_tls_context() -> Iterator[None]:
    """Reading the certificates takes longer than most requests to servers of this machine, and each client would do it anew."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(httpx._transports.default, "create_ssl_context", functools.cache(httpx.create_ssl_context))
        yield


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    """A home of the test's own; CLAWPIPE_HOME names it."""
    monkeypatch.setenv("CLAWPIPE_HOME", str(tmp_path / "home"))
    return Home.from_env()


class ObjectStorage(NamedTuple):
    """A server that speaks S3, and where it listens."""

    service: Service
    url: str

    def requests(self, method: str, bucket: str) -> int:
        """How many it has answered, from its own log."""
        return self.service.log.read_text().count(f'"{method} /{bucket}')


@pytest.fixture(scope="session")
def object_storage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectStorage]:
    """moto's server, which all tests share."""
    port = free_port()
    command = [sys.executable, "-m", "moto.server", "-H", LOOPBACK, "-p", str(port)]
    with running("moto", command, tmp_path_factory.mktemp("moto") / "server.log", {}) as service:
        url = f"http://{LOOPBACK}:{port}"
        service.wait_healthy(f"{url}/moto-api/", timeout=180.0)
        yield ObjectStorage(service, url)


@pytest.fixture
def bucket(object_storage: ObjectStorage, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of an empty bucket; the environment says how to reach it, for this process and its children."""
    import fsspec

    facts = {"AWS_ENDPOINT_URL": object_storage.url, "AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret"}
    mine = {"AWS_CONFIG_FILE": os.devnull, "AWS_SHARED_CREDENTIALS_FILE": os.devnull}  # nothing of the user's is read
    for name, value in (facts | mine | {"AWS_DEFAULT_REGION": "us-east-1"}).items():
        monkeypatch.setenv(name, value)
    for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    name = f"bucket-{uuid.uuid4().hex}"
    fsspec.filesystem("s3").mkdir(name)
    return name


@pytest.fixture
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of an empty store of the kind that the parameter names: `s3`, `file` or `memory`."""
    if request.param == "s3":
        return f"s3://{request.getfixturevalue('bucket')}/some/prefix"
    return f"file://{tmp_path}/share/store" if request.param == "file" else f"memory://{uuid.uuid4().hex}/store"


_INTERPRETER = """#!{python} -S
import sys
sys.path.insert(0, {tests!r})
import preloaded
preloaded.end_by(preloaded.interpret(sys.argv[0], sys.argv[1:]))
"""


@pytest.fixture(scope="session")
def preloaded_guard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The script that runs a command in a fork of a process which has imported what it needs: see tests/preloaded.py."""
    with _one_for_all_workers(tmp_path_factory, "preloaded", _preloaded) as place:
        yield place / "guard.py"


@contextmanager
def _preloaded(place: Path) -> Iterator[None]:
    for name in ("guard.py", "socket"):
        (place / name).unlink(missing_ok=True)
    place.joinpath("guard.py").symlink_to(source := Path(__file__).with_name("preloaded.py"))
    interpreter = place / "python"
    interpreter.write_text(_INTERPRETER.format(python=sys.executable, tests=str(source.parent)))
    interpreter.chmod(0o755)
    socket, one_thread = place / "socket", {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "TQDM_DISABLE": "1"}
    parent = processes.spawn([sys.executable, str(source), "--serve", str(socket)], env=os.environ | one_thread)
    while not socket.exists():
        assert parent.poll() is None
        time.sleep(0.1)
    yield
    processes.stop(parent)


@contextmanager
def _one_for_all_workers(
    factory: pytest.TempPathFactory, name: str, start: Callable[[Path], AbstractContextManager[None]]
) -> Iterator[Path]:
    """Yield a directory in which `start` has started something: the first of xdist's workers that asks starts it, and ends it when
    no worker uses it any more."""
    base = factory.getbasetemp()
    place = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / name
    place.mkdir(exist_ok=True)
    with (place / "changing").open("w") as changing, (place / "users").open("w") as users, ExitStack() as ours:
        fcntl.flock(changing, fcntl.LOCK_EX)
        fcntl.flock(users, fcntl.LOCK_SH)
        owner = not (started := place / "started").exists()
        if owner:
            ours.enter_context(start(place))
            started.touch()
        fcntl.flock(changing, fcntl.LOCK_UN)
        yield place
        if owner:
            fcntl.flock(changing, fcntl.LOCK_EX)
            fcntl.flock(users, fcntl.LOCK_EX)  # waits for the other workers to end
            started.unlink()


@pytest.fixture(scope="session")
def empty_database(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A database with MLflow's tables and nothing in them, to be copied: making it takes seconds."""
    with _one_for_all_workers(tmp_path_factory, "empty-registry", _mlflow_tables) as place:
        yield place / "mlflow.db"


@contextmanager
def _mlflow_tables(place: Path) -> Iterator[None]:
    from clawpipe.record.registry.client import changes
    from clawpipe.record.registry.tracking import Tracking

    uri, artifacts = f"sqlite:///{place / 'mlflow.db'}", str(place / "artifacts")
    with changes(Tracking(uri=uri, artifacts=artifacts, model_name="agent", home=place)):
        pass
    yield


@pytest.fixture
def quick_python(preloaded_guard: Path) -> list[str]:
    """Words in place of the interpreter's: `clawpipe.cli.main` then starts without imports."""
    return [sys.executable, "-S", str(preloaded_guard), "-1", sys.executable]


@pytest.fixture(scope="module")
def quick_scripts(preloaded_guard: Path, quick_children: None) -> Iterator[None]:
    """`sys.executable` starts clawpipe's modules, benchmarks and examples without imports, and whatever else as it does."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "executable", str(preloaded_guard.with_name("python")))
        yield


@pytest.fixture(scope="module")
def quick_children(preloaded_guard: Path) -> Iterator[None]:
    """Workers, trainers and other children of this process start without imports, too."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(processes, "__file__", str(preloaded_guard))
        yield


_COLD = {sys: ("executable", sys.executable), processes: ("__file__", processes.__file__)}


@pytest.fixture
def cold() -> Callable[[], AbstractContextManager[None]]:
    """`with cold():` children import everything for themselves, as a user's do, in a file whose others do not."""

    @contextmanager
    def block() -> Iterator[None]:
        with pytest.MonkeyPatch.context() as patch:
            for module, (name, value) in _COLD.items():
                patch.setattr(module, name, value)
            yield

    return block


@pytest.fixture(scope="session")
def prefect_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a real Prefect server that all tests share; from now on the environment holds what it asks for."""
    own = Home(tmp_path_factory.mktemp("prefect-server"))
    with pytest.MonkeyPatch.context() as patch, server(own, free_port()) as (_, url):
        patch.setenv("PREFECT_API_AUTH_STRING", home_secret(own))
        yield url
        _drain()


@pytest.fixture
def prefect_api(prefect_server: str, home: Home, monkeypatch: pytest.MonkeyPatch) -> Iterator[Api]:
    """The shared server as the configured API, for this process and its children; records go to the test's home."""
    from prefect.settings import temporary_settings

    api = Api(prefect_server, private=False, configured=True)
    for name, value in environment(home, api).items():
        monkeypatch.setenv(name, value)
    with temporary_settings(
        {
            "PREFECT_API_URL": api.url,
            "PREFECT_API_AUTH_STRING": os.environ["PREFECT_API_AUTH_STRING"],
            "PREFECT_LOCAL_STORAGE_PATH": str(home.steps),
            "PREFECT_SERVER_EPHEMERAL_ENABLED": False,
        }
    ):
        yield api


def _drain() -> None:
    """Send what Prefect's background threads still hold: at interpreter exit the server is gone."""
    from flows.bootstrap import drain

    drain()
