"""What every provider does alike. The container's image is a busybox, made on the spot; skipped where podman starts none."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from clawpipe.errors import ConfigError, DataError, NotFoundError
from clawpipe.play.sandbox.base import Limits, Result, Sandbox, get, open_sandbox, put
from tests.permissions import private_files
from tests.waiting import wait_until

LIMITS = Limits(seconds=20.0, output_bytes=1 << 16, memory_bytes=256 << 20, disk_bytes=8 << 20, processes=32)
IMAGE = "clawpipe-test-busybox"
# A machine without cgroup v2, and one whose limits cannot be raised, need these; they change nothing elsewhere.
SETTINGS = '[engine]\ncgroup_manager = "cgroupfs"\nevents_logger = "file"\n'


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("image")
    with pytest.MonkeyPatch.context() as patch:
        (folder / "containers.conf").write_text(SETTINGS + (f'runtime = "{runc}"\n' if (runc := shutil.which("runc")) else ""))
        patch.setenv("CONTAINERS_CONF", str(folder / "containers.conf"))
        if not (shutil.which("podman") and (busybox := shutil.which("busybox"))):
            pytest.skip("no podman and busybox on this machine: apt-get install podman runc busybox-static")
        _make_image(folder, busybox)
        flags = ["--rm", "--network=none", "--ulimit=nproc=32:32", "--ulimit=nofile=1024:1024"]
        tried = subprocess.run(["podman", "run", *flags, IMAGE, "/bin/sh", "-c", "true"], capture_output=True, text=True)
        if tried.returncode:
            pytest.skip(f"podman starts no container on this machine: {tried.stderr.strip()}")
        yield IMAGE
        subprocess.run(["podman", "rmi", "--force", IMAGE], capture_output=True, check=True)


def _make_image(folder: Path, busybox: str) -> None:
    (root := folder / "root" / "bin").mkdir(parents=True)
    (folder / "root" / "usr").mkdir()
    shutil.copy(busybox, root / "busybox")
    for name in ["sh", "cat", "dirname", "env", "head", "kill", "ls", "mkdir", "printf", "sleep", "test", "true", "chmod", "id"]:
        (root / name).symlink_to("busybox")
    (folder / "root" / "usr" / "bin").symlink_to("../bin")
    subprocess.run(["tar", "-C", folder / "root", "-cf", folder / "image.tar", "."], check=True)
    subprocess.run(["podman", "import", folder / "image.tar", IMAGE], capture_output=True, check=True)


@pytest.fixture(params=["bubblewrap", "unsafe_local", pytest.param("container", marks=pytest.mark.slow)])
def sandbox(request: pytest.FixtureRequest) -> Iterator[Sandbox]:
    name = str(request.param)
    options = {"image": request.getfixturevalue("image")} if name == "container" else {}
    if name == "bubblewrap" and not shutil.which("bwrap"):
        pytest.skip("no bubblewrap on this machine: apt-get install bubblewrap")
    opened = open_sandbox(name, LIMITS, options)
    yield opened
    opened.close()


@pytest.mark.parametrize("seconds", [1e300, float("inf")])
def test_a_command_may_have_all_the_time(sandbox, seconds):
    assert sandbox.exec("echo done", seconds=seconds).text == "done\n"


def test_programs_scripts_and_codes(sandbox: Sandbox):
    assert sandbox.exec(["/usr/bin/printf", "%s|", "a b", "$HOME", ";"]).stdout == b"a b|$HOME|;|"
    assert sandbox.exec("echo a; echo b >&2; exit 3") == Result(3, b"a\n", b"b\n")
    assert sandbox.exec("kill -9 $$").code == -9
    assert sandbox.exec(["/no/such/program"]).code in (126, 127)


def test_input_and_variables(sandbox: Sandbox):
    assert sandbox.exec("cat; echo $WORD", stdin=b"in ", env={"WORD": 'it\'s "x" $y'}).stdout == b'in it\'s "x" $y\n'


def test_files_have_the_usual_bits_whoever_starts_the_sandbox(sandbox: Sandbox):
    with private_files():  # as all processes of clawpipe's
        assert sandbox.exec("echo > f; mkdir d; ls -ld f d").code == 0
        lines = sandbox.exec("ls -ld f d").stdout.decode().split("\n")
    assert [line[:10] for line in lines if line] == ["drwxr-xr-x", "-rw-r--r--"]


def test_a_deadline_ends_all_of_it(sandbox: Sandbox):
    mark = f"sleep 47{os.getpid()}"  # no other process's
    assert sandbox.exec(f"{mark} & {mark}", seconds=1.0).ended == "timeout"
    wait_until(lambda: mark not in subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout, 10.0)
    assert sandbox.exec("echo alive").stdout == b"alive\n"


def test_too_much_output_ends_it(sandbox: Sandbox):
    result = sandbox.exec("while :; do echo xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx; done")
    assert (result.ended, len(result.stdout)) == ("output", 1 << 16)


def test_files_go_in_and_out(sandbox: Sandbox):
    put(sandbox, "a/b", b"\0\xff")
    assert get(sandbox, "a/b") == b"\0\xff"
    with pytest.raises(DataError, match="no such file"):
        get(sandbox, "a/c")


def test_a_closed_one_has_died(sandbox: Sandbox):
    sandbox.close()
    sandbox.close()
    assert sandbox.exec("true").ended == "died"


@pytest.mark.slow
def test_a_container_has_no_network_and_no_way_to_write(image: str):
    box = open_sandbox("container", LIMITS, {"image": image})
    assert box.exec("echo x > /bin/new; echo x > /etc/new; ls /sys/class/net; id -u").stdout.split() == [b"lo", b"1000"]
    box.close()


@pytest.mark.slow
def test_an_image_that_is_not_there_is_refused(image: str):
    with pytest.raises(ConfigError, match="does not start"):
        open_sandbox("container", LIMITS, {"image": "clawpipe-test-nothing"})


@pytest.mark.parametrize("name", ["--privileged", "", "a b", "$(x)"])
def test_what_is_no_name_of_an_image_is_refused(name: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}")
    with pytest.raises(ConfigError, match="no name of an image"):
        open_sandbox("container", LIMITS, {"image": name})


def test_a_program_other_than_the_two_is_refused():
    with pytest.raises(ConfigError, match="podman or docker"):
        open_sandbox("container", LIMITS, {"image": "a", "program": "/bin/sh"})


def test_a_provider_that_nobody_has_is_not_found():
    with pytest.raises(NotFoundError, match="no sandbox 'bubble'"):
        open_sandbox("bubble", LIMITS, {})


def test_a_provider_of_a_file(tmp_path: Path):
    source = "class Mine:\n    def __init__(self, limits): self.limits = limits\n    exec = end_processes = close = None\n"
    (tmp_path / "mine.py").write_text(source)
    assert open_sandbox(f"{tmp_path}/mine.py:Mine", LIMITS, {}).limits == LIMITS  # type: ignore[attr-defined]


def test_memory_is_bounded_without_a_sandbox_too():
    box = open_sandbox("unsafe_local", LIMITS, {})
    assert box.exec(["/usr/bin/env", "python3", "-c", "x = b'x' * (600 << 20); import time; time.sleep(9)"]).ended == "memory"
    box.close()
