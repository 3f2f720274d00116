"""A pool of worker processes, as their parent sees it; a worker starts when it is first needed."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import IO, Any, Self

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.core.config.runtime import Runtime
from clawpipe.core.system import processes
from clawpipe.core.system.devices import gpu_count, meter
from clawpipe.errors import BusyError, ClawpipeError, error_from, from_exit_code
from clawpipe.play.workers.request import CheckRequest, Job, ShardRequest
from clawpipe.play.workers.vllm_server import KEY, VllmServer


class WorkerPool:
    """Runs each job on a free worker. Threads may call it at once; a worker that died is replaced at the next job."""

    def __init__(self, runtime: Runtime, logs: Path) -> None:
        self._timeout, self._logs = runtime.step_timeout, logs
        self._plans = _devices(runtime)
        self._meter = meter()
        self._vllm = VllmServer(logs)
        self._free: queue.SimpleQueue[int] = queue.SimpleQueue()
        self._workers: dict[int, subprocess.Popen[bytes]] = {}
        self._closed = False
        for number in range(len(self._plans)):
            self._free.put(number)

    @property
    def size(self) -> int:
        return len(self._plans)

    def run(self, job: Job) -> Any:
        """Run the job on a free worker, and return its result.

        Raises:
            ClawpipeError: what the worker raised, or the pool has been closed; BusyError when it was killed or took too long.
        """
        number = self._free.get()
        try:
            if self._closed:  # a step of a night that has failed must start no worker that nobody would end
                raise ClawpipeError("the generation workers have been stopped: the night is over")
            job = self._placed(job)
            with self._meter.occupied(self._plans[number][0]):
                return self._ask(self._workers.get(number) or self._start(number), number, job)
        finally:
            self._free.put(number)

    def stop_server(self) -> None:
        """End the vLLM server that this pool has started, if any; the next job that needs it starts another."""
        self._vllm.stop()

    def _placed(self, job: Job) -> Job:
        """Return the job with the URL of its engine's server, which is started if needed."""
        request = job.request
        if not isinstance(request, ShardRequest | CheckRequest) or request.engine.python is None:
            return job
        engine = self._vllm.place(request.engine, request.policy)
        return job.model_copy(update={"request": request.model_copy(update={"engine": engine})})

    def _start(self, number: int) -> subprocess.Popen[bytes]:
        device, threads = self._plans[number]
        self._logs.mkdir(parents=True, exist_ok=True)
        with (self._logs / f"worker-{number}.log").open("ab") as log:
            worker = processes.spawn(
                [sys.executable, "-m", "clawpipe.play.workers", device, str(threads)],
                env=os.environ | {"OMP_NUM_THREADS": str(threads), "TOKENIZERS_PARALLELISM": "false", KEY: self._vllm.key},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
            )
        self._workers[number] = worker
        return worker

    def _ask(self, worker: subprocess.Popen[bytes], number: int, job: Job) -> Any:
        request = job.model_dump_json().encode() + b"\n"
        watchdog = threading.Timer(self._timeout, processes.stop, [worker])
        watchdog.start()
        try:
            _pipe(worker.stdin).write(request)
            _pipe(worker.stdin).flush()
            line = _pipe(worker.stdout).readline()
        except (BrokenPipeError, ValueError):  # a ValueError where `stop` has closed the pipe
            line = b""
        finally:
            watchdog.cancel()
        if not line.endswith(b"\n"):  # nothing, or the beginning of an answer
            self._workers.pop(number, None)
            raise self._death(worker, number)
        return _result(json.loads(line))

    def _death(self, worker: subprocess.Popen[bytes], number: int) -> ClawpipeError:
        log = self._logs / f"worker-{number}.log"
        code = processes.stop(worker)
        if code in (-9, -15):
            return BusyError(
                f"a generation worker was killed (signal {-code})", str(log), "try again; if memory is short, lower runtime.workers"
            )
        tail = log.read_text(errors="replace").splitlines()[-1:] or ["no output"]
        return from_exit_code(code, f"a generation worker ended with exit code {code}: {tail[0]}", str(log), "read its log")

    def close(self) -> None:
        """End all workers."""
        self._closed = True
        for worker in list(self._workers.values()):
            processes.stop(worker)
        self._workers.clear()
        self._vllm.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


_shared: ContextVar[WorkerPool | None] = ContextVar("shared", default=None)


@contextmanager
def open_workers(runtime: Runtime, logs: Path) -> Iterator[WorkerPool]:
    """Yield the pool that an enclosing block opened, as a night does to keep models loaded between steps, or open one.

    Args:
        runtime: how many workers, on which devices.
        logs: directory of their logs.
    """
    if (shared := _shared.get()) is not None:
        yield shared
        return
    with WorkerPool(runtime, logs) as pool, lent(pool):
        yield pool


@contextmanager
def lent(pool: WorkerPool) -> Iterator[None]:
    """Let `open_workers` yield this pool in the block."""
    token = _shared.set(pool)
    try:
        yield
    finally:
        _shared.reset(token)


def stop_server() -> None:
    """End the vLLM server of the enclosing block's pool, so that what comes next has its accelerator."""
    if (shared := _shared.get()) is not None:
        shared.stop_server()


def _pipe(pipe: IO[bytes] | None) -> IO[bytes]:
    assert pipe is not None
    return pipe


def _result(answer: JsonObject) -> Any:
    if "error" not in answer:
        return answer["ok"]
    raise error_from(answer["error"])


def _devices(runtime: Runtime) -> list[tuple[str, int]]:
    """Return (device, threads) of each worker."""
    cores = os.cpu_count() or 1
    gpus = gpu_count() if runtime.device in ("auto", "cuda") else 0
    if gpus:
        return [(f"cuda:{number % gpus}", max(cores // (runtime.workers or gpus), 1)) for number in range(runtime.workers or gpus)]
    workers = runtime.workers or min(cores, 2)
    return [("cpu" if runtime.device == "auto" else runtime.device, max(cores // workers, 1))] * workers
