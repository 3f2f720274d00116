"""A sandbox in a container of podman or docker, by its command line: any image, and the limits of its control group."""

from __future__ import annotations

import io
import json
import os
import re
import secrets
import select
import shutil
import subprocess
import tarfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Literal

from clawpipe.errors import BusyError, ConfigError
from clawpipe.play.sandbox.base import WORK, Excess, Limits, host_folder, last_reason, own_folder
from clawpipe.play.sandbox.running import Programs, close_pipes, memory_file, variables

_START_SECONDS = 120.0  # an image may have to be unpacked
_USER = "1000:1000"
_READY = b"ready\n"
_WAIT = f"test -w {WORK} || {{ echo 'user 1000 cannot write into the {WORK} of the image' >&2; exit 1; }}; echo ready; read -r _"
_IMAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/:@-]*")
_UNKNOWN = re.compile("(?i)no such image|not known|no such object|not found")  # in words of docker and podman
Program = Literal["podman", "docker"]


@dataclass(frozen=True)
class Image:
    """An image on this machine.

    Attributes:
        id: the digest of its configuration, which names what it holds.
        folder: in which its programs start.
        variables: of its programs.
    """

    id: str
    folder: str
    variables: Mapping[str, str]


@cache
def image_of(name: str, program: Program = "podman") -> Image:
    """Return what an image says of itself, asked once in this process.

    Raises:
        ConfigError: there is no such program, or no such image on this machine.
    """
    asked = [_found(program, name), "image", "inspect", name]
    done = subprocess.run(asked, capture_output=True, check=False, timeout=_START_SECONDS)
    if done.returncode:
        raise _not_told(last_reason(done.stderr), name, program)
    told = json.loads(done.stdout)[0]
    config = told.get("Config") or {}
    pairs = (pair.partition("=") for pair in config.get("Env") or ())
    return Image(told["Id"], config.get("WorkingDir") or "/", {key: value for key, _, value in pairs if "\n" not in value})


def _not_told(why: str, name: str, program: str) -> ConfigError:
    """Return the error of an image that a program does not know, or of a program that cannot say so, such as one whose service is
    not running."""
    if _UNKNOWN.search(why):
        return ConfigError("there is no such image on this machine", f"sandbox: {name}", f"{program} pull {name}, or build it")
    return ConfigError(f"{program} does not answer: {why}", f"sandbox: {name}", f"try {program} image inspect {name}")


def files_of(name: str, folder: str, program: Program = "podman") -> bytes:
    """Return what an image has in a folder, as a tar archive without the folder itself; nothing of it runs.

    Raises:
        ConfigError: it has no such folder, or see `image_of`.
    """
    found = _found(program, name)
    made = subprocess.run([found, "create", "--pull=never", name, "true"], capture_output=True, check=False)
    container = made.stdout.decode().strip()
    try:
        copied = subprocess.run([found, "cp", f"{container}:{folder}/.", "-"], capture_output=True, check=False)
    finally:
        subprocess.run([found, "rm", "--force", container], capture_output=True, check=False)
    if copied.returncode:
        raise ConfigError(f"its folder {folder} cannot be read", f"sandbox: {name}", f"try {program} run --rm {name} ls {folder}")
    return _without_root(copied.stdout)


def _without_root(archive: bytes) -> bytes:
    """Return a tar archive without its first folder, whose mode whoever unpacks it there cannot set."""
    data = io.BytesIO()
    with tarfile.open(fileobj=io.BytesIO(archive)) as old, tarfile.open(fileobj=data, mode="w") as new:
        for member in old:
            if member.name.strip("./"):
                new.addfile(member, old.extractfile(member) if member.isreg() else None)
    return data.getvalue()


def _found(program: str, image: str) -> str:
    if program not in ("podman", "docker") or not (found := shutil.which(program)):
        raise ConfigError(f"no program {program!r} on this machine", "sandbox.options.program", "install podman or docker")
    if not _IMAGE.fullmatch(image):
        raise ConfigError("no name of an image", f"sandbox.options.image: {image!r}", "like debian:12 or sha256:...")
    return found


class Container(Programs):
    """An image's files, read only; /workspace, /tmp and /dev/shm of its own, in memory; no network.

    The image needs `sh`; and `tar` with GNU's options where snapshots are taken. It is never pulled: a night downloads nothing.
    The container ends with this process: its first program waits for the end of a pipe that this process holds open.

    Args:
        limits: what it may use. `files` is not kept: the memory of the control group bounds their number.
        image: its name or id.
        program: podman or docker; its own settings (runtime, control groups, storage) are its own files'.
        folders: further places to write to, in memory; they are empty, whatever the image has there (see `files_of`).
        paths: folders of this machine that can be read at the same place.

    Raises:
        ConfigError: no such program or image, a path is no folder, or the container does not start; says why.
        BusyError: it did not start in two minutes.
    """

    def __init__(
        self, limits: Limits, image: str, program: Program = "podman", folders: Sequence[str] = (), paths: Sequence[str] = ()
    ) -> None:
        self._program = _found(program, image)
        super().__init__(limits)
        self._paths = [host_folder(path) for path in paths]
        self._writable = (WORK, "/tmp", "/dev/shm", *map(own_folder, folders))
        self._name = f"clawpipe-{secrets.token_hex(8)}"
        self._holder = self._start(image)
        self._open_up(folders)

    def end_processes(self) -> None:
        if not self._gone():
            process = self._enter(["/bin/sh", "-c", "kill -9 -1"], None, self._limits.seconds)
            process.wait()
            close_pipes(process)

    def close(self) -> None:
        close_pipes(self._holder)  # the end of its input ends it
        self._holder.wait()

    def _start(self, image: str) -> subprocess.Popen[bytes]:
        pipe = subprocess.PIPE
        holder = subprocess.Popen([self._program, "run", *self._flags(), image, "/bin/sh", "-c", _WAIT],
                                  stdin=pipe, stdout=pipe, stderr=pipe, start_new_session=True)  # fmt: skip
        assert holder.stdout is not None
        in_time = bool(select.select([holder.stdout], [], [], _START_SECONDS)[0])
        if in_time and holder.stdout.readline() == _READY:
            return holder
        holder.kill()  # without effect on one that has ended
        _, said = holder.communicate()
        subprocess.run([self._program, "rm", "--force", self._name], capture_output=True, check=False)
        raise _refusal(in_time, said.decode(errors="replace"), image)

    def _open_up(self, folders: Sequence[str]) -> None:
        """Let user 1000 write into folders: a place in memory has the mode of the image's folder that it covers."""
        if folders:
            opened = [self._program, "exec", "--user=0", self._name, "chmod", "1777", *folders]
            done = subprocess.run(opened, capture_output=True, check=False)
            if done.returncode:
                self.close()
                raise _refusal(True, done.stderr.decode(errors="replace"), self._name)

    def _enter(self, argv: list[str], env: Mapping[str, str] | None, seconds: float) -> subprocess.Popen[bytes]:
        """Start a command inside. Its variables come from a file in memory: command lines can be read by others. Those of several
        lines, which such a file cannot hold, come from the variables of the program that starts it."""
        given = variables(env)
        long = {name: value for name, value in given.items() if "\n" in value}
        pipe, script = subprocess.PIPE, memory_file(_env_file(given.items() - long.items()))
        options = ["--interactive", f"--env-file=/proc/self/fd/{script}", *(f"--env={name}" for name in long)]
        try:
            return subprocess.Popen(
                [self._program, "exec", *options, self._name, *argv], env={**os.environ, **long},
                stdin=pipe, stdout=pipe, stderr=pipe, pass_fds=(script,), start_new_session=True,
            )  # fmt: skip
        finally:
            os.close(script)

    def _gone(self) -> bool:
        return self._holder.poll() is not None

    def _excess(self, process: subprocess.Popen[bytes]) -> Excess | None:
        return "died" if self._gone() else None  # the control group and the file systems keep the limits

    def _flags(self) -> list[str]:
        limits = self._limits
        place = f"rw,size={limits.disk_bytes},mode=1777,nosuid,nodev,exec"
        if self._program.endswith("podman"):
            place += ",notmpcopyup"  # what it copies belongs to root
        return [
            "--rm", "--interactive", "--name", self._name, "--pull=never", "--network=none", "--read-only", "--cap-drop=all",
            "--security-opt=no-new-privileges", f"--user={_USER}", f"--workdir={WORK}", "--hostname=sandbox",
            f"--pids-limit={limits.processes}", f"--memory={limits.memory_bytes}", f"--memory-swap={limits.memory_bytes}",
            "--ulimit=core=0:0", "--ulimit=nofile=1024:1024", f"--ulimit=nproc={limits.processes}:{limits.processes}",
            "--entrypoint=",
            *(f"--tmpfs={folder}:{place}" for folder in self._writable),
            *(f"--volume={path}:{path}:ro" for path in self._paths),
        ]  # fmt: skip


def _refusal(in_time: bool, said: str, image: str) -> ConfigError | BusyError:
    if not in_time:
        return BusyError(f"the container did not start in {_START_SECONDS:.0f} seconds", f"sandbox: {image}", "try again")
    last = (said.strip().splitlines() or ["no reason given"])[-1]
    return ConfigError(f"the container does not start: {last}", f"sandbox: {image}", "try the image with podman or docker run")


def _env_file(env: Iterable[tuple[str, str]]) -> bytes:
    return "".join(f"{name}={value}\n" for name, value in sorted(env)).encode(errors="surrogateescape")
