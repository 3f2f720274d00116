"""A hundred ways out of a sandbox. Each script writes ESCAPED where its way leads out.

`test_the_scripts_can_tell` is the control: the same scripts, without a sandbox.
"""

from __future__ import annotations

import ctypes
import os
import socket
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from clawpipe.play.sandbox.base import WORK, Limits, put, snapshot
from clawpipe.play.sandbox.bubblewrap import Bubblewrap
from tests.waiting import wait_until

SECRET = "canary-5b1f0c"
FOUND = f"grep -qs {SECRET[:6]}[-]{SECRET[7:]}"  # no pattern that finds itself in a command line


class Outside:
    """What lies on this machine, by the names that scripts use as variables."""

    def __init__(self, folder: Path, memory: Path, port: int, pid: int) -> None:
        (folder / "secret").write_text(SECRET)
        (folder / "secret").chmod(0o644)
        self.names = {
            "FILE": str(folder / "secret"), "FOLDER": str(folder), "SHM": str(memory), "PORT": str(port), "PID": str(pid),
            "SOCKET": str(folder / "socket"), "ABSTRACT": f"clawpipe-test-{port}", "PYTHON": "/usr/bin/python3",
        }  # fmt: skip


@pytest.fixture(scope="module")
def outside() -> Iterator[Outside]:
    """Files, servers on TCP, UDP and Unix sockets, a process, a segment of shared memory and a variable that hold the secret."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder, tempfile.NamedTemporaryFile(dir="/dev/shm") as memory:
        Path(folder).chmod(0o755)
        Path(memory.name).write_text(SECRET)
        os.chmod(memory.name, 0o644)
        with socket.create_server(("0.0.0.0", 0)) as tcp, subprocess.Popen(["sleep", "600"], env={"SECRET": SECRET}) as process:
            port = tcp.getsockname()[1]
            known = Outside(Path(folder), Path(memory.name), port, process.pid)
            os.environ["CLAWPIPE_TEST_SECRET"] = SECRET
            with _unix(known.names["SOCKET"]), _unix("\0" + known.names["ABSTRACT"]):
                yield known
            del os.environ["CLAWPIPE_TEST_SECRET"]
            assert process.poll() is None, "a script has ended a process of this machine"
            process.kill()


def _unix(address: str) -> socket.socket:
    server = socket.socket(socket.AF_UNIX)
    server.bind(address)
    if not address.startswith("\0"):
        os.chmod(address, 0o777)
    server.listen()
    return server


NETWORK = [
    "exec 3<>/dev/tcp/127.0.0.1/$PORT && echo ESCAPED",
    "exec 3<>/dev/tcp/localhost/$PORT && echo ESCAPED",
    "exec 3<>/dev/tcp/0.0.0.0/$PORT && echo ESCAPED",
    "exec 3<>/dev/tcp/::1/$PORT && echo ESCAPED",
    "exec 3<>/dev/tcp/10.0.2.2/$PORT && echo ESCAPED",
    "exec 3<>/dev/tcp/172.17.0.1/$PORT && echo ESCAPED",
    "exec 3<>/dev/tcp/169.254.169.254/80 && echo ESCAPED",
    "exec 3<>/dev/tcp/1.1.1.1/53 && echo ESCAPED",
    "exec 3<>/dev/udp/1.1.1.1/53 && echo x >&3 && echo ESCAPED",
    "getent hosts example.org && echo ESCAPED",
    '[ "$(grep -c : /proc/net/dev)" -gt 1 ] && echo ESCAPED',
    '[ "$(wc -l < /proc/net/route)" -gt 1 ] && echo ESCAPED',
    "ip link add dummy0 type dummy && echo ESCAPED",
    "ip link set lo mtu 1000 && echo ESCAPED",
    """$PYTHON -c 'import os,socket; s=socket.socket(socket.AF_UNIX); s.connect("\\0"+os.environ["ABSTRACT"]); print("ESCAPED")'""",
    """$PYTHON -c 'import os,socket; s=socket.socket(socket.AF_UNIX); s.connect(os.environ["SOCKET"]); print("ESCAPED")'""",
    """$PYTHON -c 'import socket; socket.socket(socket.AF_INET, socket.SOCK_RAW, 1); print("ESCAPED")'""",
    """$PYTHON -c 'import socket; socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 3); print("ESCAPED")'""",
]
FILES = [
    f"{FOUND} $FILE && echo ESCAPED",
    f"{FOUND} ../../../../..$FILE && echo ESCAPED",
    f"{FOUND} /proc/self/root$FILE && echo ESCAPED",
    f"{FOUND} /proc/1/root$FILE && echo ESCAPED",
    f"{FOUND} /proc/self/cwd/../..$FILE && echo ESCAPED",
    f"{FOUND} /proc/$PPID/root$FILE && echo ESCAPED",
    f"{FOUND} $SHM && echo ESCAPED",
    f"ln -s $FILE link; {FOUND} link && echo ESCAPED",
    f"ln -s / root; {FOUND} root/$FILE && echo ESCAPED",
    "ln $FILE hard && echo ESCAPED",
    "echo x > $FOLDER/new && echo ESCAPED",
    f"for fd in /proc/self/fd/*; do {FOUND} $fd/$FILE && echo ESCAPED; done",
    f"for fd in /proc/[0-9]*/fd/*; do {FOUND} $fd/$FILE && echo ESCAPED; done",
    f"for cwd in /proc/[0-9]*/cwd; do {FOUND} $cwd/../..$FILE && echo ESCAPED; done",
    "cat /etc/shadow && echo ESCAPED",
    "[ -e /etc/hostname ] && echo ESCAPED",
    "[ -e /root ] && ls /root && echo ESCAPED",
    "[ -e /home ] && ls /home && echo ESCAPED",
    "[ -e /var ] && ls /var && echo ESCAPED",
    "[ -e /sys/kernel ] && echo ESCAPED",
    "[ -e /run/docker.sock ] || [ -e /var/run/docker.sock ] && echo ESCAPED",
    "touch /usr/new && echo ESCAPED",
    "touch /usr/local/bin/new && echo ESCAPED",
    "touch /bin/new && echo ESCAPED",
    "touch /new && echo ESCAPED",
    "touch /etc/new && echo ESCAPED",
    "touch /dev/new && echo ESCAPED",
    "echo x >> /etc/passwd && echo ESCAPED",
    "rm /bin && echo ESCAPED",
    "mount -t tmpfs none /tmp && echo ESCAPED",
    "mount --bind / /tmp && echo ESCAPED",
    "mount -o remount,rw / && echo ESCAPED",
    "mount -o remount,rw /usr && echo ESCAPED",
    "umount /usr && echo ESCAPED",
    "umount -l /proc && echo ESCAPED",
    "chroot / /bin/true && echo ESCAPED",
    "mkdir old; pivot_root . old && echo ESCAPED",
]
DEVICES = [
    "for device in /dev/[a-z]d[a-z] /dev/nvme* /dev/loop* /dev/mapper/*; do [ -e $device ] && echo ESCAPED; done",
    "[ -e /dev/mem ] || [ -e /dev/kmsg ] || [ -e /dev/fuse ] || [ -e /dev/kvm ] && echo ESCAPED",
    "mknod disk b 254 0 && echo ESCAPED",
    "mknod null c 1 3 && echo ESCAPED",
    "head -c 1 /proc/kcore && echo ESCAPED",
    "dmesg && echo ESCAPED",
    "echo b > /proc/sysrq-trigger && echo ESCAPED",
    "echo /workspace/x > /proc/sys/kernel/core_pattern && echo ESCAPED",
    "echo 1 > /proc/sys/vm/drop_caches && echo ESCAPED",
    "[ $(awk 'NR==1 {print $1}' /proc/kallsyms) != 0000000000000000 ] && echo ESCAPED",
]
PROCESSES = [
    "kill -0 $PID && echo ESCAPED",
    "kill -KILL $PID && echo ESCAPED",
    "[ -e /proc/$PID/cmdline ] && [ $PID -gt 500 ] && echo ESCAPED",
    '[ "$(ls -d /proc/[0-9]* | wc -l)" -gt 6 ] && echo ESCAPED',
    f"cat /proc/[0-9]*/environ | tr '\\0' '\\n' | {FOUND} && echo ESCAPED",
    f"cat /proc/[0-9]*/cmdline | tr '\\0' '\\n' | {FOUND} && echo ESCAPED",
    f"env | {FOUND} && echo ESCAPED",
    "kill -KILL 1; sleep 0.05; kill -0 1 || echo ESCAPED",
    "kill -STOP 1; grep -q 'State:.T' /proc/1/status && echo ESCAPED",
    "nice -n -5 true 2>&1 | grep -q . || echo ESCAPED",
    "chrt -f 1 true && echo ESCAPED",
    "prlimit --nproc=1000 true && echo ESCAPED",
    "ulimit -c unlimited && echo ESCAPED",
    "hostname other && echo ESCAPED",
    "date -s 2001-01-01 && echo ESCAPED",
    "reboot -f && echo ESCAPED",
    "modprobe loop && echo ESCAPED",
    '[ "$(ipcs -m | grep -c ^0x)" -gt 0 ] && echo ESCAPED',
]
NAMESPACES = [
    "unshare --user true && echo ESCAPED",
    "unshare --user --map-root-user true && echo ESCAPED",
    "unshare --mount true && echo ESCAPED",
    "unshare --net true && echo ESCAPED",
    "unshare --pid --fork true && echo ESCAPED",
    "unshare --ipc true && echo ESCAPED",
    "unshare --uts true && echo ESCAPED",
    "unshare --user --net --mount --map-root-user true && echo ESCAPED",
    "nsenter --target 1 --mount true && echo ESCAPED",
    "nsenter --target 1 --user true && echo ESCAPED",
    "nsenter --target $PPID --all true && echo ESCAPED",
    "bwrap --dev-bind / / true && echo ESCAPED",
    """$PYTHON -c 'import ctypes; assert ctypes.CDLL(None).unshare(0x10000000) == 0; print("ESCAPED")'""",
]
PRIVILEGES = [
    "grep -E 'Cap(Prm|Eff|Inh|Amb)' /proc/self/status | grep -qv 0000000000000000 && echo ESCAPED",
    "grep -q 'NoNewPrivs:.0' /proc/self/status && echo ESCAPED",
    "[ $(id -u) = 0 ] && echo ESCAPED",
    "cp /bin/sh own; chmod 4755 own; chown 0 own && echo ESCAPED",
    "su -c true && echo ESCAPED",
    "setpriv --reuid 0 true && echo ESCAPED",
    "$PYTHON -c 'import os; os.setuid(0); print(\"ESCAPED\")'",
    "setcap cap_sys_admin+ep /bin/sh && echo ESCAPED",
    "for file in $(find /usr/bin -perm -4000); do $file --version < /dev/null; [ $(id -u) = 0 ] && echo ESCAPED; done",
]
ALL = [*NETWORK, *FILES, *DEVICES, *PROCESSES, *NAMESPACES, *PRIVILEGES]


@pytest.mark.parametrize("script", ALL)
def test_a_way_out_is_closed(box: Bubblewrap, outside: Outside, script: str):
    result = box.exec(["/bin/bash", "-c", script], env=outside.names)
    assert result.ended is None
    assert b"ESCAPED" not in result.stdout


READING = [*NETWORK[:3], *NETWORK[14:16], *FILES[:1], *FILES[6:8], *FILES[10:11], *PROCESSES[:1], *PROCESSES[6:7]]


@pytest.mark.parametrize("script", READING)
def test_the_scripts_can_tell(outside: Outside, tmp_path: Path, script: str):
    found = subprocess.run(["/bin/bash", "-c", script], env=dict(os.environ) | outside.names, cwd=tmp_path, capture_output=True)
    assert b"ESCAPED" in found.stdout


def test_links_are_followed_inside_alone(box: Bubblewrap, outside: Outside):
    box.exec(f"ln -s {outside.names['FOLDER']} out; mkdir -p {WORK}/real; ln -s real in")
    put(box, "in/file", b"data")
    result = box.exec("cat real/file")
    assert result.stdout == b"data"
    assert not (Path(outside.names["FOLDER"]) / "file").exists()


def test_an_archive_holds_a_link_as_a_link(box: Bubblewrap, outside: Outside):
    box.exec(["/bin/ln", "-s", outside.names["FILE"], "link"])
    assert SECRET.encode() not in snapshot(box)


def test_variables_stand_in_no_command_line(box: Bubblewrap):
    box.exec("sleep 30 &", env={"TOKEN": SECRET})
    lines = [path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline") if _readable(path)]
    assert not [line for line in lines if SECRET.encode() in line and b"FOUND" not in line]


def _readable(path: Path) -> bool:
    try:
        path.read_bytes()
    except OSError:
        return False
    return True


BOMBS = {
    "yes": "output",
    "yes >&2": "output",
    "cat /dev/zero": "output",
    "sleep 60": "timeout",
    "while :; do :; done": "timeout",
    "trap '' TERM INT HUP; sleep 60": "timeout",
    "i=0; while :; do : > $((i+=1)); done": "files",
    "cd /tmp; mkdir $(seq 1000); sleep 60": "files",
}


def _processes(box: Bubblewrap) -> int:
    """Return how many there are; 0 where the look itself was ended, as each command is while a limit is exceeded."""
    return int((box.exec("ls /proc | grep -c '^[0-9]'").stdout.split() or [0])[0])


@pytest.mark.parametrize(("script", "limit"), BOMBS.items())
def test_a_bomb_ends_by_its_limit(box: Bubblewrap, script: str, limit: str):
    assert box.exec(["/bin/bash", "-c", script], seconds=2.0 if limit == "timeout" else 20.0).ended == limit
    wait_until(lambda: 0 < _processes(box) <= 4, 10.0)  # its own ones are left


def test_memory_of_all_processes_is_bounded_together(box: Bubblewrap):
    one = "import mmap,time; m=mmap.mmap(-1, 100<<20); m.write(b'x'*(100<<20)); time.sleep(30)"
    result = box.exec(f'for i in 1 2 3 4; do /usr/bin/python3 -c "{one}" & done; wait', seconds=30.0)
    assert result.ended == "memory"


def test_one_process_gets_no_more_than_its_share(box: Bubblewrap):
    result = box.exec("/usr/bin/python3 -c 'bytearray(400 << 20)'")
    assert result.ended is None
    assert b"MemoryError" in result.stderr


@pytest.mark.parametrize("place", [WORK, "/tmp", "/dev/shm"])
def test_a_disk_bomb_meets_a_full_disk(box: Bubblewrap, place: str):
    box.exec(f"cat /dev/zero > {place}/one; cat /dev/zero > {place}/two")
    assert int(box.exec(f"du -sb {place} | cut -f1").stdout) <= 9 << 20


def test_a_fork_bomb_meets_its_limit(box: Bubblewrap):
    result = box.exec("for i in $(seq 100); do sleep 20 & done", seconds=20.0)
    assert b"Cannot fork" in result.stderr
    box.end_processes()
    assert box.exec("echo alive").stdout == b"alive\n"


def test_what_is_left_behind_ends_when_it_is_told(box: Bubblewrap):
    box.exec("(setsid sh -c 'trap \"\" TERM; sleep 0.3; echo late > bomb') & exit 0")
    box.end_processes()
    assert box.exec("sleep 0.5; ls").stdout == b""


def test_a_sandbox_whose_first_process_is_traced_only_dies(outside: Outside):
    """The worst that a program can do to its own sandbox is to end it; the next command says so."""
    with Bubblewrap(Limits(seconds=5.0)) as box:
        script = "gdb -p 1 -batch -ex 'call (void)_exit(0)' || true"
        box.exec(script)
        assert box.exec("true").ended in (None, "died")


def test_shared_memory_of_this_machine_is_not_seen(box: Bubblewrap):
    libc = ctypes.CDLL(None, use_errno=True)
    segment = libc.shmget(0x5B1F, 4096, 0o1666)
    try:
        assert box.exec("ipcs -m | grep -i 5b1f").stdout == b""
    finally:
        libc.shmctl(segment, 0, None)


def test_two_sandboxes_do_not_see_each_other(box: Bubblewrap):
    with Bubblewrap(Limits(seconds=5.0)) as other:
        threading.Thread(target=box.exec, args=("echo secret > /workspace/a /tmp/a; sleep 1",)).start()
        assert other.exec("ls /workspace /tmp /dev/shm; ls -d /proc/[0-9]* | wc -l").stdout.split()[-1] <= b"4"
