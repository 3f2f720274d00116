"""Does a night on the machines of a cluster give what it gives on one, whatever dies? What does a step cost? Prints JSON lines.

    python benchmarks/machines.py nights overhead workers kills [--engine dask,ray] >> benchmarks/machines.jsonl

Two machines with networks, processes and directories of their own (machines_lab.py), and a hub with Postgres for Prefect and
MLflow, moto for S3, and the scheduler or head. The hub's process runs the night of `configs/tiny.yaml`, shortened; the machines do
its steps.

nights    the night in threads on the hub, then on each engine: are all digests equal?
overhead  a chunk without rollouts as a step, and a function that does nothing with the same arguments, in turn
workers   rollouts a second of one worker and of four, two on each machine, in an environment that keeps the policy waiting
kills     nights in which machines are killed, on the engines in turn, at moments drawn from the time that a night takes; half of
          the machines lose their cable first, so that nobody is told
"""

from __future__ import annotations

import argparse
import contextvars
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple
from unittest.mock import patch

from machines_lab import DASK, HUB, RAY, ROOT, START_SECONDS, Lab, Machine, in_namespaces, lab, wait_until
from machines_steps import SLEEP, empty_chunk, nothing

from clawpipe.core.basics.json_types import JsonObject, Options
from clawpipe.core.config import NightConfig, load_config
from clawpipe.core.services.service import running
from clawpipe.core.store.refs import StepResult
from clawpipe.play.clusters.base import Cluster, open_cluster
from clawpipe.play.rollouts.generate import Chunk
from flows.policies import untrained
from tasks.cluster import on_cluster
from tasks.items import make_items
from tasks.rollouts import generate_chunk
from tasks.step import Step

SHORT = (  # all kinds of steps; chunks, partitions and held-out items are shared out
    *("rounds=1", "rollouts.items=8", "rollouts.chunks=4", "rollouts.shard_rollouts=16"),
    *("train.optimizer_steps=2", "environment.heldout_items=32"),
)
TINY, STEPS = ROOT / "configs" / "tiny.yaml", ROOT / "benchmarks" / "machines_steps.py"
CALLS, CHUNKS = 40, 12
GROUP = 4  # rollouts of a chunk of the slow environment
ADDRESSES = {"dask": f"tcp://{HUB}:{DASK}", "ray": f"{HUB}:{RAY}"}
READY = {"dask": "Scheduler at:", "ray": "will now block"}  # in the log
OWN = {"record_look", "publish_lineage", "register", "promote"}  # steps whose result is of one home, or of one time
TOLD = ("verdict", "heldout")  # of a night's status
NIGHT_SECONDS = 1800.0
THREADS = 2  # calls at a time on a machine
_PORTS = ("dashboard-agent-grpc-port", "dashboard-agent-listen-port", "metrics-export-port", "runtime-env-agent-port")
_SMALL = ["--object-store-memory", "100000000", *(f"--{name}={8100 + place}" for place, name in enumerate(_PORTS))]


@dataclass
class Site:
    """A home with its machines; the cluster's workers are on them."""

    lab: Lab
    engine: str
    shared: bool = True
    machines: list[Machine] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix=f"{self.engine}-", dir=self.lab.directory))
        self.environment = dict(self.lab.environment) | {"MLFLOW_TRACKING_URI": self.lab.registry()}
        if self.shared:
            self.environment["CLAWPIPE_SHARED"] = self.lab.bucket()
        self.here = self.environment | {"CLAWPIPE_HOME": str(self.directory / "hub")}

    def add_machine(self, threads: Sequence[int] = (THREADS,)) -> Machine:
        """Start a machine with workers that take so many calls at a time."""
        number = len(self.machines)
        machine = Machine(f"machine-{chr(ord('a') + number)}", number + 2, self.directory / f"machine-{number}")
        for worker, calls in enumerate(threads):
            own = self.environment | {"CLAWPIPE_HOME": str(machine.scratch / "home")}
            machine.start(f"worker-{worker}", _worker(self.engine, machine, calls), **own)
        self.machines.append(machine)
        return machine

    def night(self) -> JsonObject:
        """Run the night on the hub; its steps are done by the machines, if there are any."""
        options = [word for text in (*SHORT, *([_runner(self.engine)] if self.shared else [])) for word in ("-o", text)]
        command = [sys.executable, "-m", "clawpipe", "run", "-c", str(TINY), "--json", *options]
        begun = time.monotonic()
        try:
            done = subprocess.run(command, env=os.environ | self.here, capture_output=True, text=True, timeout=NIGHT_SECONDS)
        except subprocess.TimeoutExpired:  # it is no end of the other nights
            return {"seconds": NIGHT_SECONDS, "code": None, "digests": {}}
        seconds = round(time.monotonic() - begun, 1)
        if done.returncode:
            print(done.stdout[-2000:], done.stderr[-4000:], file=sys.stderr)
            return {"seconds": seconds, "code": done.returncode, "digests": {}}
        status = json.loads(done.stdout)
        digests = {step["name"]: step["digest"] for step in status["steps"] if step["name"] not in OWN}
        return {"seconds": seconds, "code": 0, "digests": digests, **{name: status[name] for name in TOLD}}

    def close(self) -> None:
        for machine in self.machines:
            machine.kill()


def _runner(engine: str) -> str:
    return f"runtime.task_runner={{name: {engine}, address: '{ADDRESSES[engine]}'}}"


def _worker(engine: str, machine: Machine, calls: int) -> list[str]:
    if engine == "dask":
        options = ["--host", machine.address, "--nthreads", str(calls), "--no-nanny", "--no-dashboard"]
        return [sys.executable, "-m", "distributed.cli.dask_worker", ADDRESSES["dask"], *options, "--local-directory", "/tmp/dask"]
    where = ["--address", ADDRESSES["ray"], "--node-ip-address", machine.address]
    return [str(Path(sys.executable).with_name("ray")), "start", *where, "--num-cpus", str(calls), *_SMALL, "--block"]


@contextmanager
def head(engine: str, lab: Lab) -> Iterator[None]:
    """Run Dask's scheduler or Ray's head on the hub."""
    if engine == "dask":
        command = [sys.executable, "-m", "distributed.cli.dask_scheduler", "--host", HUB, "--port", str(DASK), "--no-dashboard"]
    else:
        where = ["--head", "--node-ip-address", HUB, "--port", str(RAY), "--num-cpus", "0", "--include-dashboard=false"]
        command = [str(Path(sys.executable).with_name("ray")), "start", *where, *_SMALL, "--block"]
    log = lab.directory / f"{engine}.log"
    with running(engine, command, log, lab.environment):
        wait_until(lambda: READY[engine] in log.read_text(), START_SECONDS)
        yield


@contextmanager
def site(lab: Lab, engine: str, workers: Sequence[Sequence[int]] = ((THREADS,), (THREADS,))) -> Iterator[Site]:
    """Yield a home of its own, with machines whose workers can be called."""
    made = Site(lab, engine, shared=engine != "threads")
    try:
        for threads in workers if made.shared else ():
            made.add_machine(threads)
        yield made
    finally:
        made.close()


def nights(lab: Lab, engines: Sequence[str], seen: dict[str, JsonObject]) -> Iterator[JsonObject]:
    """The same night in threads and on each engine, but for those that `seen` holds; it gets the others."""
    if "threads" not in seen:
        with site(lab, "threads") as alone:
            seen["threads"] = alone.night()
        yield {"engine": "threads"} | seen["threads"]
    for engine in [one for one in engines if one not in seen]:
        with head(engine, lab), site(lab, engine) as cluster:
            seen[engine] = _compared(cluster.night(), seen["threads"])
        yield {"engine": engine} | seen[engine]


class Plan(NamedTuple):
    """The nights in which machines are killed, and how many in each."""

    nights: int
    deaths: int
    seed: int


def kills(lab: Lab, engines: Sequence[str], planned: Plan, seen: dict[str, JsonObject]) -> Iterator[JsonObject]:
    """Nights in which machines are killed."""
    with ExitStack() as stack:
        for engine in engines:
            stack.enter_context(head(engine, lab))
        for number in range(planned.nights):
            engine, draw = engines[number % len(engines)], random.Random(f"{planned.seed}/{number}")
            moments = sorted(draw.uniform(0, seen[engine]["seconds"]) for _ in range(planned.deaths))
            yield {"engine": engine, "seed": planned.seed, "night": number} | _killed(lab, engine, moments, seen["threads"], draw)


def _killed(lab: Lab, engine: str, moments: list[float], expected: JsonObject, draw: random.Random) -> JsonObject:
    dead: list[JsonObject] = []
    ended = threading.Event()
    with site(lab, engine) as cluster:
        killer = threading.Thread(target=_kill, args=(cluster, moments, draw, ended, dead))
        killer.start()
        found = cluster.night()
        ended.set()  # it may have been faster than the undisturbed one
        killer.join()
    return {"dead": dead} | _compared(found, expected)


def _kill(cluster: Site, moments: list[float], draw: random.Random, ended: threading.Event, dead: list[JsonObject]) -> None:
    """Kill a machine at each moment; before the next one another machine takes its place."""
    begun, alive = time.monotonic(), list(cluster.machines)
    for moment in moments:
        if ended.wait(max(begun + moment - time.monotonic(), 0.0)):
            return
        victim, cable_first = draw.choice(alive), draw.random() < 0.5
        victim.kill(cable_first)
        dead.append({"machine": victim.name, "after": round(time.monotonic() - begun, 1), "cable_first": cable_first})
        if moment != moments[-1]:
            alive = [one for one in alive if one is not victim] + [cluster.add_machine()]


def _compared(found: JsonObject, expected: JsonObject) -> JsonObject:
    """Return how long a night took, its verdict, and whether it is the expected one, or in which steps it is not."""
    steps = {*found["digests"], *expected["digests"]}
    other = sorted(name for name in steps if found["digests"].get(name) != expected["digests"].get(name))
    equal = not other and all(found[name] == expected[name] for name in TOLD)
    return {"seconds": found["seconds"], "code": found["code"], "equal": equal, "steps": len(steps), "other": other}


def overhead(lab: Lab, engines: Sequence[str], calls: int) -> Iterator[JsonObject]:
    """Seconds of a chunk that is a step, and of a call that does nothing, one after the other in turn."""
    for engine in engines:
        config = _config(engine)
        with head(engine, lab), site(lab, engine, [(1,)]) as machines, _in(machines.here), open_cluster(config.runtime) as cluster:
            assert cluster is not None
            steps, bare = zip(*_in_turn(config, cluster, calls), strict=True)
        beside = [step - own for step, own in zip(steps, bare, strict=True)]
        figures = {"step_seconds": _spread(steps), "engine_seconds": _spread(bare), "beside_the_engine": _spread(beside)}
        yield {"engine": engine, "calls": calls} | figures


def _in_turn(config: NightConfig, cluster: Cluster, calls: int) -> list[tuple[float, float]]:
    arguments = _chunk(config, Chunk(ordinals=(), together=()))
    with patch("tasks.cluster.open_cluster", lambda runtime: nullcontext(cluster)), on_cluster(config.runtime):
        _call(empty_chunk, arguments)  # the worker imports what it needs
        return [
            (_seconds(lambda: _call(empty_chunk, arguments)), _seconds(lambda: cluster.call(nothing, arguments)))
            for _ in range(calls)
        ]


def workers(lab: Lab, engines: Sequence[str], chunks: int) -> Iterator[JsonObject]:
    """Rollouts a second of one worker and of four, once their models are loaded."""
    for engine in engines:
        with head(engine, lab):
            one, four = (_rate(lab, engine, machines, chunks) for machines in _ONE_AND_FOUR[engine])
        rates = {"sleep_seconds": SLEEP, "chunks": chunks, "one": one, "four": four, "ratio": round(four / one, 2)}
        yield {"engine": engine} | rates


_ONE_AND_FOUR = {"dask": ([(1,)], [(1, 1), (1, 1)]), "ray": ([(1,)], [(2,), (2,)])}  # Ray starts a process for each call at a time


def _rate(lab: Lab, engine: str, machines: Sequence[Sequence[int]], chunks: int) -> float:
    """Return rollouts a second."""
    slow = [f"environment.name={STEPS}:SlowLetters", "rollouts.max_turns=1", f"rollouts.group_size={GROUP}"]
    config, everybody = _config(engine, *slow), sum(sum(calls) for calls in machines)
    with site(lab, engine, machines) as cluster, _in(cluster.here), on_cluster(config.runtime):
        _play([_chunk_of(config, one) for one in range(chunks, chunks + everybody)])  # each worker loads its model
        calls = [_chunk_of(config, one) for one in range(chunks)]
        return round(chunks * GROUP / _seconds(lambda: _play(calls)), 3)


def _chunk_of(config: NightConfig, item: int) -> Options:
    return _chunk(config, Chunk(ordinals=(item,), together=(item,)))


def _play(calls: Sequence[Options]) -> None:
    """Let the workers generate these chunks, all at once."""
    contexts = [contextvars.copy_context() for _ in calls]  # of the block with the cluster
    with ThreadPoolExecutor(len(calls)) as threads:
        list(threads.map(lambda context, call: context.run(_call, generate_chunk, call), contexts, calls))


def _config(engine: str, *overrides: str) -> NightConfig:
    return load_config(TINY, [*overrides, _runner(engine)])


def _chunk(config: NightConfig, chunk: Chunk) -> Options:
    """Return the arguments of a chunk of rollouts, as a night's first round makes them."""
    items = make_items.function(environment=config.drawn).dataset
    policy, runtime = untrained(config.model), config.runtime
    rest = {"environment": config.drawn, "config": config.rollouts, "chunk": chunk, "seed": 0, "runtime": runtime}
    return {"items": items, "policy": policy, **rest}


def _call(step: Step[...], arguments: Options) -> StepResult:
    return step.task.fn(**arguments)


def _seconds(call: Callable[[], object]) -> float:
    begun = time.monotonic()
    call()
    return time.monotonic() - begun


def _spread(seconds: Sequence[float]) -> JsonObject:
    cuts = statistics.quantiles(seconds, n=20)
    return {"median": round(statistics.median(seconds), 4), "p95": round(cuts[-1], 4), "most": round(max(seconds), 4)}


@contextmanager
def _in(environment: dict[str, str]) -> Iterator[None]:
    before = dict(os.environ)
    os.environ.update(environment)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def _nights_in(file: Path) -> dict[str, JsonObject]:
    lines = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    return {line["engine"]: line for line in lines if line["part"] == "nights"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=["nights", "overhead", "workers", "kills"], nargs="+", help="kills come after nights")
    parser.add_argument("--engine", default="dask,ray")
    parser.add_argument("--count", type=int, default=20, help="of nights with kills")
    parser.add_argument("--deaths", type=int, default=1, help="of machines in each of these nights")
    parser.add_argument("--resume", type=Path, help="lines of an earlier run, whose nights are not run again")
    parser.add_argument("--seed", type=int, default=0, help="of kills")
    options = parser.parse_args()
    in_namespaces()
    engines = options.engine.split(",")
    with tempfile.TemporaryDirectory(dir="/dev/shm", ignore_cleanup_errors=True) as directory, lab(Path(directory)) as made:
        seen = _nights_in(options.resume) if options.resume else {}
        parts = {
            "nights": lambda: nights(made, engines, seen),
            "overhead": lambda: overhead(made, engines, CALLS),
            "workers": lambda: workers(made, engines, CHUNKS),
            "kills": lambda: kills(made, engines, Plan(options.count, options.deaths, options.seed), seen),
        }
        for part in options.part:
            for line in parts[part]():
                print(json.dumps({"part": part, "load": round(os.getloadavg()[0], 1)} | line), flush=True)


if __name__ == "__main__":
    main()
