"""A sandbox made of Linux namespaces by `bubblewrap`.

One bubblewrap holds the namespaces for as long as the sandbox lives: its only program is a shell that waits for the end of a
pipe which this process alone holds open. So the kernel ends everything inside when this process ends, even by SIGKILL. Each
command enters these namespaces anew, from outside: nothing inside stands between a check and the program that it starts.

Where this process is root, all of it runs as a user whose number nobody else has, because a limit of processes is void for root.
"""

from __future__ import annotations

import fcntl
import json
import math
import os
import secrets
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from clawpipe.errors import BusyError, ConfigError
from clawpipe.play.sandbox.base import WORK, Excess, Limits, host_folder, own_folder
from clawpipe.play.sandbox.running import UMASK, Programs, close_pipes, exports, memory_file, variables
from clawpipe.play.sandbox.usage import excess_of

_START_SECONDS = 30.0
_MOST_SECONDS = 1e9  # of the processor, that prlimit reads; a clock keeps what was asked for
_USER = 1000  # inside
_FIRST_USER, _USERS = (
    1_600_000_000,
    1 << 26,
)  # outside, where this process is root: far from people, services and their subordinates
_GET_PARENT = 0xB702  # NS_GET_PARENT of linux/nsfs.h
_WRITABLE = (WORK, "/tmp", "/dev/shm")
_TOOLS = ("bwrap", "nsenter", "setpriv", "prlimit")
_FOLDERS = ("lib", "lib32", "lib64", "libx32", "bin", "sbin")
_ETC = ("alternatives", "ld.so.cache", "ld.so.conf", "ld.so.conf.d", "localtime", "mime.types")  # what programs of /usr look up
_PASSWD = f"root:x:0:0::/root:/bin/sh\nagent:x:{_USER}:{_USER}::{WORK}:/bin/sh\n"
_REMEDY = (
    "allow unprivileged user namespaces (sysctl kernel.unprivileged_userns_clone=1, user.max_user_namespaces above 0, on Ubuntu "
    "kernel.apparmor_restrict_unprivileged_userns=0; in Docker --security-opt seccomp=unconfined), or choose another sandbox"
)
_UNREADABLE = "programs run as a user without rights: let all users read this folder and enter those above it, or put it below /opt"
# Its own variables come first, from a descriptor: what stands in a command line can be read by every user of the machine.
# bash, because `sh` cannot close a descriptor of two digits.
_ENTRY = '. /proc/self/fd/"$1"; for fd in "$1" "$2" "$3"; do eval "exec $fd<&-"; done; shift 3; exec "$@"'


class Bubblewrap(Programs):
    """Files of this machine's /usr, read only; /workspace, /tmp and /dev/shm of its own, in memory; a network of its own alone.

    Args:
        limits: what it may use.
        paths: further folders of this machine that can be read at the same place, e.g. a Python's.
        folders: further places to write to, in memory and empty, e.g. /app.

    Raises:
        ConfigError: a tool is missing, a path is no folder, a place cannot be made, or the kernel refuses; says what to set.
        BusyError: it did not start in half a minute.
    """

    def __init__(self, limits: Limits, paths: Sequence[str] = (), folders: Sequence[str] = ()) -> None:
        super().__init__(limits)
        self._writable = (*_WRITABLE, *map(own_folder, folders))
        self._tools = {tool: _tool(tool) for tool in _TOOLS}
        self._as_user = self._dropped_user()
        self._users: tuple[int, int] | None = None  # descriptors of the two user namespaces, outer and inner
        self._holder, self._init = self._start(paths)
        self._users = _user_namespaces(self._init)

    def end_processes(self) -> None:
        if self._gone():
            return
        # `kill -1` reaches every process inside but the first one, in one step of the kernel: nothing can fork faster.
        process = self._enter(["/bin/sh", "-c", "kill -KILL -1"], None, self._limits.seconds)
        with suppress(subprocess.TimeoutExpired):
            process.wait(self._limits.seconds)
        process.kill()
        process.wait()
        close_pipes(process)

    def close(self) -> None:
        if self._users is None:
            return
        for descriptor in self._users:
            os.close(descriptor)
        self._users = None
        close_pipes(self._holder)  # the end of its input ends it
        self._holder.wait()

    def __enter__(self) -> Bubblewrap:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _dropped_user(self) -> list[str]:
        if os.geteuid() != 0:
            return []
        user = str(_FIRST_USER + secrets.randbelow(_USERS))
        return [self._tools["setpriv"], "--reuid", user, "--regid", user, "--clear-groups"]

    def _start(self, paths: Sequence[str]) -> tuple[subprocess.Popen[bytes], int]:
        """Return bubblewrap, and the id of the first process inside.

        It tells the id in a file: were it a pipe and this process killed now, bubblewrap would end by SIGPIPE and leave its child
        waiting for ever.
        """
        passwd, info = memory_file(_PASSWD.encode()), memory_file(b"")
        options = [*_mounts(paths, self._writable, self._limits, passwd), "--info-fd", str(info), "--as-pid-1"]
        wait = ["/bin/bash", "-c", "read -r _"]
        holder = subprocess.Popen(
            [*self._as_user, self._tools["bwrap"], *options, "--", *wait],
            stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, pass_fds=(passwd, info), env={}
        )  # fmt: skip
        os.close(passwd)
        try:
            return holder, _first_process(holder, info)
        except BaseException:
            _end(holder, _told(info))
            raise
        finally:
            os.close(info)

    def _enter(self, argv: list[str], env: Mapping[str, str] | None, seconds: float) -> subprocess.Popen[bytes]:
        """Start a command in the namespaces.

        The user namespace is two deep (bubblewrap's way to forbid a third), and the others belong to the outer one: so a command
        joins the outer one with them, where it may, and the inner one then. It has no capabilities from there on.
        """
        assert self._users is not None
        outer, inner = self._users
        script = memory_file(exports(variables(env)))
        try:
            return subprocess.Popen(
                [
                    *self._as_user, self._tools["nsenter"], f"--target={self._init}", f"--user=/proc/self/fd/{outer}",
                    "--mount", "--uts", "--ipc", "--net", "--pid", "--cgroup", "--preserve-credentials",
                    f"--root=/proc/{self._init}/root", f"--wd=/proc/{self._init}/cwd", "--",
                    "/usr/bin/nsenter", f"--user=/proc/self/fd/{inner}", "--preserve-credentials", "--",
                    "/usr/bin/setpriv", "--no-new-privs", "--inh-caps=-all", "--ambient-caps=-all", "--",
                    *_rlimits(self._limits, seconds),
                    "/bin/bash", "-c", _ENTRY, "bash", *map(str, (script, outer, inner)), *argv,
                ],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, pass_fds=(script, outer, inner), env={},
                start_new_session=True, umask=UMASK,
            )  # fmt: skip
        finally:
            os.close(script)

    def _gone(self) -> bool:
        return self._users is None or self._holder.poll() is not None

    def _excess(self, process: subprocess.Popen[bytes]) -> Excess | None:
        if self._gone():
            return "died"
        root = f"/proc/{self._init}/root"
        return excess_of((self._init, process.pid), (root + place for place in self._writable), self._limits)


def is_seen(file: Path, paths: Sequence[str]) -> bool:
    """Whether a file of this machine is at the same place inside a sandbox that has these further folders."""
    return any(file.is_relative_to(place) for place in ("/usr", *(f"/{name}" for name in _FOLDERS), *paths))


def _tool(name: str) -> str:
    if found := shutil.which(name):
        return found
    package = "bubblewrap" if name == "bwrap" else "util-linux"
    raise ConfigError(f"no program {name!r} on this machine", "sandbox: bubblewrap", f"install it: apt-get install {package}")


def _mounts(paths: Sequence[str], writable: Sequence[str], limits: Limits, passwd: int) -> list[str]:
    """Return bubblewrap's options: what there is inside. Order counts."""
    options = ["--unshare-all", "--unshare-user", "--disable-userns", "--cap-drop", "ALL", "--new-session", "--clearenv"]
    options += ["--uid", str(_USER), "--gid", str(_USER), "--hostname", "sandbox", "--ro-bind", "/usr", "/usr"]
    for folder in _FOLDERS:  # links into /usr on a merged system, folders of their own elsewhere
        if (path := Path("/", folder)).is_symlink():
            options += ["--symlink", str(path.readlink()), str(path)]
        elif path.is_dir():
            options += ["--ro-bind", str(path), str(path)]
    for name in _ETC:
        options += ["--ro-bind-try", f"/etc/{name}", f"/etc/{name}"]
    options += ["--ro-bind-data", str(passwd), "/etc/passwd", "--proc", "/proc", "--dev", "/dev"]
    for place in writable:
        options += ["--size", str(limits.disk_bytes), "--tmpfs", place]
    for path in paths:
        options += ["--ro-bind", host_folder(path), path]
    return [*options, "--remount-ro", "/dev", "--remount-ro", "/", "--chdir", WORK]


def _rlimits(limits: Limits, seconds: float) -> list[str]:
    """Limits of each process; those of all together are looked at from outside."""
    return [
        "/usr/bin/prlimit", f"--nproc={limits.processes}", f"--data={limits.memory_bytes}", f"--fsize={limits.disk_bytes}",
        f"--cpu={math.ceil(min(seconds, _MOST_SECONDS)) + 1}", "--nofile=1024", "--core=0", "--memlock=65536", "--msgqueue=0", "--",
    ]  # fmt: skip


def _first_process(holder: subprocess.Popen[bytes], info: int) -> int:
    """Return the id of the first process inside, once it runs its program.

    Raises:
        ConfigError: bubblewrap ended instead.
        BusyError: it takes too long.
    """
    deadline = time.monotonic() + _START_SECONDS
    while holder.poll() is None:
        if (first := _told(info)) and not _same_program(first, holder.pid):
            return first
        if time.monotonic() > deadline:
            raise BusyError(f"it did not start in {_START_SECONDS:.0f} seconds", "sandbox: bubblewrap", "try again")
        time.sleep(0.001)
    raise _refused(holder)


def _told(info: int) -> int | None:
    """Return the id that bubblewrap has written, if it has."""
    told = os.pread(info, 4096, 0)
    return int(json.loads(told)["child-pid"]) if b"}" in told else None


def _same_program(one: int, other: int) -> bool:
    try:
        return os.readlink(f"/proc/{one}/exe") == os.readlink(f"/proc/{other}/exe")
    except OSError:  # it has ended: bubblewrap will tell why
        return True


def _refused(holder: subprocess.Popen[bytes]) -> ConfigError:
    assert holder.stderr is not None
    holder.wait()
    lines = holder.stderr.read().decode(errors="replace").strip().splitlines()
    reason = (lines or ["no reason given"])[-1]
    remedy = _UNREADABLE if "source path" in reason else _REMEDY
    return ConfigError(f"it does not start: {reason}", "sandbox: bubblewrap", remedy)


def _end(holder: subprocess.Popen[bytes], first: int | None) -> None:
    """End bubblewrap, and the process that waits for it inside."""
    holder.kill()
    if first:
        with suppress(ProcessLookupError):
            os.kill(first, signal.SIGKILL)
    holder.wait()
    close_pipes(holder)


def _user_namespaces(process: int) -> tuple[int, int]:
    inner = os.open(f"/proc/{process}/ns/user", os.O_RDONLY | os.O_CLOEXEC)
    return fcntl.ioctl(inner, _GET_PARENT), inner
