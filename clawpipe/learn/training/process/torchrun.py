"""`python -m clawpipe.learn.training.process.torchrun request.json`: start the processes of a run, and keep their exit code.

It calls torchrun, or `accelerate launch` with the request's config, in this process: run as commands they would turn every
failure into exit code 1.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from torch.distributed.elastic.multiprocessing.errors import ChildFailedError

from clawpipe.errors import BusyError, ClawpipeError, ConfigError
from clawpipe.learn.children.answer import read_request
from clawpipe.learn.children.ranks import parted
from clawpipe.learn.training.request import TrainRequest

_MODULE = "clawpipe.learn.training"


def main(argv: list[str]) -> int:
    sys.stdout = sys.stderr  # file descriptor 1 carries the progress of the main process
    try:
        _start(read_request(Path(argv[1]), TrainRequest), argv[1])
    except ChildFailedError as failed:
        return worst(failure.exitcode for failure in failed.failures.values())
    except subprocess.CalledProcessError as failed:
        return failed.returncode
    except ClawpipeError as error:
        return _told(error)
    except Exception as error:
        if (known := parted(error)) is None:
            raise
        return _told(known)
    return 0


def _told(error: ClawpipeError) -> int:
    print(f"{type(error).__name__}: {error}", file=sys.stderr)
    return error.exit_code


def worst(codes: Iterable[int]) -> int:
    """Return the exit code that explains the failure: a kill first, then an error of clawpipe's, then the rest."""
    codes = list(codes)
    killed = [code for code in codes if code < 0]
    meant = [code for code in codes if code > 1]
    return [*killed, *meant, *codes][0]


def _start(request: TrainRequest, file: str) -> None:
    if request.accelerate is None:
        _torchrun(["--standalone", "--nproc-per-node", str(request.processes), "-m", _MODULE, file])
    else:
        _accelerate(request.accelerate, ["--num_processes", str(request.processes), "-m", _MODULE, file])


def _torchrun(arguments: list[str]) -> None:
    from torch.distributed.run import parse_args, run

    run(parse_args(arguments))


def _accelerate(config: str, arguments: list[str]) -> None:
    from accelerate.commands.launch import launch_command, launch_command_parser

    try:
        launch_command(launch_command_parser().parse_args(["--config_file", config, *arguments]))
    except ConnectionError as error:  # the port is in use
        said = str(error).partition(". ")[0]
        raise BusyError(f"accelerate refuses: {said}", config, "set another main_process_port, or end what uses it") from error
    except (ImportError, OSError, TypeError, ValueError) as error:
        raise ConfigError(f"accelerate refuses: {error}", config, "the shipped configs lie in configs/accelerate/") from error


def _end(code: int) -> None:
    """Exit with a code, or end by the signal that a negative code stands for, so that the parent sees the same."""
    if code < 0:
        if -code != signal.SIGKILL:
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    sys.exit(code)


if __name__ == "__main__":
    _end(main(sys.argv))
