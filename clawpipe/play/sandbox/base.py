"""The protocol of a sandbox, its limits, and the providers by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Literal, Protocol, cast

from clawpipe.core.user_code.extensions import ExtensionPoint
from clawpipe.errors import ConfigError, DataError, NotFoundError

WORK = "/workspace"  # where commands start, and the folder that snapshots hold
_SYSTEM = ("usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32", "etc", "proc", "sys", "dev", "boot", "run", "workspace", "tmp")
Excess = Literal["timeout", "output", "memory", "disk", "files", "died"]


@dataclass(frozen=True)
class Limits:
    """What a sandbox may use.

    Attributes:
        seconds: wall-clock time of one command; `exec` may give less.
        output_bytes: what one command may write to its two outputs together.
        memory_bytes: resident memory of all processes together; also the data segment of each.
        disk_bytes: size of each writable place: the working folder, /tmp and /dev/shm. They are kept in memory.
        files: number of files and folders in one of these places.
        processes: processes and threads that live at one time.
    """

    seconds: float = 10.0
    output_bytes: int = 1 << 20
    memory_bytes: int = 1 << 30
    disk_bytes: int = 256 << 20
    files: int = 50_000
    processes: int = 64


@dataclass(frozen=True)
class Result:
    """What a command left.

    Attributes:
        code: its exit code, -N for signal N; None where it was ended.
        ended: the limit for which it was ended with all its processes; "died": the sandbox is gone. None: it ended by itself.
    """

    code: int | None
    stdout: bytes
    stderr: bytes
    ended: Excess | None = None

    @property
    def text(self) -> str:
        """What it wrote to both outputs, as text."""
        return (self.stdout + self.stderr).decode(errors="replace")


class Sandbox(Protocol):
    """A place of its own for the programs of one episode. Its methods may be called from any thread, one at a time.

    A command may leave processes behind; they live until `end_processes`, a command that exceeds a limit, or `close`. When the
    process that made the sandbox ends, also by SIGKILL, the kernel ends all that runs in it (see `UnsafeLocal` for the exception).
    """

    def exec(
        self,
        command: str | Sequence[str],
        *,
        stdin: bytes = b"",
        seconds: float | None = None,
        env: Mapping[str, str] | None = None,
        output_bytes: int | None = None,
    ) -> Result:
        """Run a command: a list is a program with its arguments, a string is a script for `sh`.

        Args:
            seconds: a deadline other than the limits'.
            env: variables beside PATH, HOME and LANG. They stand in no command line.
            output_bytes: a bound other than the limits'.

        Raises:
            ConfigError: `env` names something that is no variable.
        """
        ...

    def end_processes(self) -> None:
        """End all that still runs, so that what is asked next is not disturbed."""
        ...

    def close(self) -> None:
        """End all processes and drop all files. May be called twice."""
        ...


def put(sandbox: Sandbox, path: str, data: bytes, *, executable: bool = False) -> None:
    """Write a file; its folders are made. A relative path is one of the working folder.

    Links in the sandbox are followed within the sandbox, never on this machine.

    Raises:
        DataError: it cannot be written there.
    """
    script = 'mkdir -p -- "$(dirname -- "$1")" && cat > "$1"' + (' && chmod +x -- "$1"' if executable else "")
    _require(sandbox.exec(["/bin/sh", "-c", script, "put", path], stdin=data), path, "written")


def get(sandbox: Sandbox, path: str, at_most: int = 16 << 20) -> bytes:
    """Return the content of a file.

    Raises:
        DataError: it is no file that can be read, or it has more than `at_most` bytes.
    """
    script = '[ -f "$1" ] || { echo "no such file" >&2; exit 1; }; exec cat -- "$1"'
    result = sandbox.exec(["/bin/sh", "-c", script, "get", path], output_bytes=at_most)
    return _require(result, path, "read").stdout


def snapshot(sandbox: Sandbox, at_most: int = 256 << 20) -> bytes:
    """Return the working folder as a tar archive whose bytes depend on its files alone: names sorted, no times, no owners.

    Raises:
        DataError: it has more than `at_most` bytes.
    """
    flags = "--sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner --format=gnu"
    return _require(sandbox.exec(f"exec tar {flags} -cf - .", output_bytes=at_most), WORK, "stored").stdout


def restore(sandbox: Sandbox, archive: bytes) -> None:
    """Make the working folder what `snapshot` stored; what runs is ended, what else lies there is removed.

    Raises:
        DataError: it is no archive, or it does not fit.
    """
    sandbox.end_processes()
    script = "chmod -R u+rwX . ; find . -mindepth 1 -delete && exec tar --no-same-owner -xf -"
    _require(sandbox.exec(script, stdin=archive), WORK, "restored")


def own_folder(path: str) -> str:
    """Return a further place to write to.

    Raises:
        ConfigError: it is no absolute path, or what is there already belongs to the system.
    """
    parts = PurePosixPath(path).parts
    if len(parts) < 2 or parts[0] != "/" or ".." in parts or parts[1] in _SYSTEM:
        raise ConfigError("no place to write to", f"sandbox.options.folders: {path}", "name one like /app, outside the system's")
    return path


def host_folder(path: str) -> str:
    """Return a folder of this machine that is to be read inside.

    Raises:
        ConfigError: it is none.
    """
    if not Path(path).is_dir() or not Path(path).is_absolute():
        raise ConfigError("no folder of this machine", f"sandbox.options.paths: {path}", "name an absolute path of a folder")
    return path


def _require(result: Result, path: str, done: str) -> Result:
    if result.code != 0:
        raise DataError(f"it cannot be {done}: {result.ended or last_reason(result.stderr)}", f"sandbox: {path}")
    return result


def last_reason(said: bytes, otherwise: str = "no reason given") -> str:
    """Return the last line of what a command wrote that is a reason: tar's own last one is none."""
    lines = [line for line in said.decode(errors="replace").splitlines() if line.strip() and _NO_REASON not in line]
    return lines[-1].strip() if lines else otherwise


_NO_REASON = "Exiting with failure status"
_SETTINGS = {"sandbox.name": "sandbox", "sandbox.options": "sandbox_options"}  # by the names that errors have for them
_BUILT_IN = {
    "bubblewrap": "clawpipe.play.sandbox.bubblewrap:Bubblewrap",
    "container": "clawpipe.play.sandbox.container:Container",
    "unsafe_local": "clawpipe.play.sandbox.unsafe_local:UnsafeLocal",
}
SANDBOXES = ExtensionPoint("sandbox", "sandbox.name", _BUILT_IN, members=("exec", "end_processes", "close"))


def open_sandbox(name: str, limits: Limits, options: Mapping[str, object]) -> Sandbox:
    """Start a sandbox of a provider: bubblewrap, container, unsafe_local, one of an installed package, or path/to/file.py:NAME.

    Raises:
        NotFoundError: nothing has this name.
        ConfigError: the provider does not take these options, or it cannot run on this machine.
        BusyError: it did not start in time.
    """
    return cast(Sandbox, SANDBOXES.make(name, options, limits))


def require_sandbox(name: str, options: Mapping[str, object], where: str = "environment.options") -> None:
    """Raise where no provider has this name, or it does not take these options; no sandbox starts.

    Args:
        where: the settings `sandbox` and `sandbox_options` stand.

    Raises:
        NotFoundError, ConfigError: as `open_sandbox`.
    """
    if not isinstance(options, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]  # of a config file
        raise ConfigError("it is no mapping of options", f"{where}.sandbox_options", "write {NAME: value}")
    try:
        SANDBOXES.prepared(name, options, Limits())
    except (NotFoundError, ConfigError) as error:
        place = f"{where}.{_SETTINGS[error.where]}" if error.where in _SETTINGS else error.where
        raise type(error)(error.what, place, error.fix) from None
