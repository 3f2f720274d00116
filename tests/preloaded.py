"""Processes that start without imports: forks of one parent that has imported what nights, workers and trainers need.

As a script it takes the place of the guard of `clawpipe.core.system.processes`: the parent runs the command in a fork, with the
caller's files, environment and directory, and the script ends as the fork does. A fork outlives neither the script nor the process
that started it. `python tests/preloaded.py --serve SOCKET` is the parent. Beside the socket, a link to this file is the script, and
`python` is an
interpreter: what it is given runs in a fork if it is one of ours, else in a Python of its own.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import sys

TYPE_CHECKING = False  # `typing` would be a third of the start
if TYPE_CHECKING:
    from types import ModuleType

_FORKED = (
    *(
        "clawpipe",
        "clawpipe.cli.main",
        "clawpipe.play.workers",
        "clawpipe.learn.annotation.child",
        "clawpipe.data.ingest.intake.worker",
    ),
    *("clawpipe.learn.training", "clawpipe.learn.training.check", "clawpipe.learn.training.process.torchrun"),
    *("prefect", "prefect.engine", "prefect.runner._workspace_supervisor"),
)
_SCRIPTS = ("benchmarks", "examples")
_ROOT = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))
_LOADED = (
    *("clawpipe.cli.main", "clawpipe.play.workers.worker", "clawpipe.learn.training.run", "clawpipe.learn.training.check_run"),
    *(
        "clawpipe.data.ingest.intake.worker",
        "clawpipe.learn.annotation.run",
        "clawpipe.learn.training.losses.policy",
        "clawpipe.learn.training.losses.gae",
        "clawpipe.record.reporting.html",
    ),
    *("flows.nightly", "flows.sweep", "flows.bootstrap", "prefect.engine", "prefect.flow_engine", "prefect.task_engine"),
    # What libraries import when they are first used.
    *("sqlalchemy.orm", "sqlalchemy.dialects.sqlite", "mlflow.store.tracking.sqlalchemy_store", "alembic.command", "pyarrow.acero"),
    *(
        "mlflow.store.model_registry.sqlalchemy_store",
        "anyio._backends._asyncio",
        "graphviz",
        "pygments.formatters",
        "torch.profiler",
    ),
    *(
        "transformers.models.auto.tokenization_auto",
        "transformers.models.llama.modeling_llama",
        "peft.tuners.lora.bnb",
        "peft.utils.transformers_weight_conversion",
    ),
)
_GRACE_SECONDS = 10


# ---- the script, in place of a guard


def guard(link: str, lifeline: int, command: list[str]) -> int:
    """Run the command in a fork, or, where it is none of ours, below the usual guard. Return its code (a signal: negative)."""
    words = _forked(command[1:])
    if not words:
        own = os.path.join(_ROOT, "clawpipe", "core", "system", "processes.py")
        os.execv(sys.executable, [sys.executable, "-S", own, str(lifeline), *command])
    return _run_in_fork(link, lifeline, words)


def interpret(link: str, arguments: list[str]) -> int:
    """Be an interpreter: run the module or the script in a fork, or, where it is none of ours, in a Python of its own."""
    words = _forked(arguments)
    if not words:
        os.execv(sys.executable, [sys.executable, *arguments])
    return _run_in_fork(link, -1, words)


def _forked(arguments: list[str]) -> list[str]:
    """Return the module or script to run in a fork, with its arguments; empty if it is none of ours."""
    while arguments and arguments[0] in ("-u", "-P", "-W"):
        arguments = arguments[1 + (arguments[0] == "-W") :]
    if arguments[:1] == ["-m"]:
        return arguments[1:] if arguments[1] in _FORKED else []
    inside = os.path.relpath(os.path.realpath(arguments[0]), _ROOT).split(os.sep) if arguments else []
    return arguments if len(inside) == 2 and inside[0] in _SCRIPTS else []


def _run_in_fork(link: str, lifeline: int, words: list[str]) -> int:
    with socket.socket(socket.AF_UNIX) as parent:
        parent.connect(os.path.join(os.path.dirname(link), "socket"))
        os.umask(umask := os.umask(0))
        request = json.dumps([words, os.getcwd(), umask, dict(os.environ)]).encode() + b"\n"
        socket.send_fds(parent, [request], [0, 1, 2] + [lifeline] * (lifeline >= 0))
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, lambda number, _: parent.send(bytes([number])))
        return int(parent.recv(16) or -signal.SIGKILL)


def end_by(code: int) -> None:
    """End as the fork did."""
    if code < 0:
        with contextlib.suppress(OSError):  # SIGKILL
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    sys.exit(code)


# ---- the parent


def serve(place: str) -> list[str]:
    """Fork for each caller. Return in the fork, with the module that it runs and its arguments."""
    _preload(os.path.dirname(place))
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"{place}.new")
        listener.listen(64)
        os.rename(f"{place}.new", place)
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel buries its children
        caller, _ = listener.accept()
        while os.fork():
            caller.close()
            caller, _ = listener.accept()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    request, files, *_ = socket.recv_fds(caller, 1 << 20, 4)
    while not request.endswith(b"\n"):
        request += caller.recv(1 << 20)
    if child := os.fork():
        os._exit(_watch(child, caller, files[3:]))
    return _become(*json.loads(request), files, caller)


def _preload(directory: str) -> None:
    import importlib

    from clawpipe.core.services.prefect_server import no_api
    from clawpipe.core.system import processes
    from clawpipe.core.system.quick_imports import quick_imports

    processes.__file__, sys.executable = os.path.join(directory, "guard.py"), os.path.join(directory, "python")
    with no_api(), quick_imports():
        for name in _LOADED:
            importlib.import_module(name)
    _digest_steps()
    _before_nights(importlib.import_module("flows.bootstrap"))


def _digest_steps() -> None:
    """Read the source that each step reaches."""
    from clawpipe.core.store.source import function_digest
    from tasks.step import Step

    modules = [module for name, module in sys.modules.items() if name.startswith("tasks.")]
    for step in {value for module in modules for value in vars(module).values() if isinstance(value, Step)}:
        function_digest(step.function)


def _before_nights(bootstrap: ModuleType) -> None:
    """Let Prefect read the environment before a night, too: it has read that of this process when it was imported."""
    prepare = bootstrap.prepare_night

    def prepare_night(*, fresh_server: bool) -> None:
        _read_settings_again()
        prepare(fresh_server=fresh_server)

    bootstrap.prepare_night = prepare_night


def _read_settings_again() -> None:
    from prefect.context import refresh_global_settings_context
    from prefect.logging.configuration import setup_logging

    refresh_global_settings_context()
    setup_logging(incremental=False)


def _watch(child: int, caller: socket.socket, lifeline: list[int]) -> int:
    """End the child when the caller, or the process that started the caller, has ended. Tell the caller how the child ended."""
    with contextlib.suppress(PermissionError):  # the child has done so itself
        os.setpgid(child, child)
    ended = os.pidfd_open(child)
    ready, *_ = select.select([ended, caller, *lifeline], [], [])
    while caller in ready and ended not in ready and (number := caller.recv(1)):
        os.kill(child, number[0])  # a signal to the caller
        ready, *_ = select.select([ended, caller, *lifeline], [], [])
    killed = caller in ready  # as a guard that is killed takes its child with it
    for number in (signal.SIGKILL,) if killed else (signal.SIGTERM, signal.SIGKILL):
        if ended not in ready:
            os.killpg(child, number)
            ready, *_ = select.select([ended], [], [], _GRACE_SECONDS)
    _, status = os.waitpid(child, 0)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)  # grandchildren
    with contextlib.suppress(BrokenPipeError):
        caller.send(str(os.waitstatus_to_exitcode(status)).encode())
    return 0


def _become(
    words: list[str], directory: str, umask: int, environment: dict[str, str], files: list[int], caller: socket.socket
) -> list[str]:
    os.setpgid(0, 0)
    for number, file in enumerate(files[:3]):
        os.dup2(file, number)
    for file in (*files, caller.detach()):
        os.close(file)
    os.chdir(directory)
    os.umask(umask)
    os.environ.clear()
    os.environ.update(environment)
    sys.stdin, sys.stdout = os.fdopen(0, closefd=False), os.fdopen(1, "w", closefd=False)
    sys.stderr = os.fdopen(2, "w", buffering=1, errors="backslashreplace", closefd=False)
    return words


def run_module(words: list[str]) -> None:
    """Run a module or a script as Python does; then end without taking apart what the parent has imported."""
    import logging
    import runpy
    import traceback

    from clawpipe.core.system.processes import quick_exit

    sys.argv, code = words, 0
    logging.root.handlers.clear()  # Prefect's, which a process of its own has only once it imports Prefect
    sys.modules.pop(words[0], None)  # it is run again
    if words[0].startswith("prefect"):
        _read_settings_again()
    try:
        if words[0].endswith(".py"):
            sys.path.insert(0, os.path.dirname(os.path.abspath(words[0])))
            runpy.run_path(words[0], run_name="__main__")
        else:
            runpy.run_module(words[0], run_name="__main__", alter_sys=True)
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
        code = 1
    quick_exit(code)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--serve"]:
        run_module(serve(sys.argv[2]))
    end_by(guard(sys.argv[0], int(sys.argv[1]), sys.argv[2:]))
