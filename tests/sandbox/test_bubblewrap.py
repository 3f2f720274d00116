"""Commands in a sandbox, and what becomes of it."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clawpipe.errors import ConfigError, DataError
from clawpipe.play.sandbox.base import Limits, Result, get, open_sandbox, put, restore, snapshot
from clawpipe.play.sandbox.bubblewrap import Bubblewrap


def test_a_list_is_a_program_with_arguments(box):
    assert box.exec(["/usr/bin/printf", "%s|", "a b", "$HOME", ";", "é"]).stdout.decode() == "a b|$HOME|;|é|"


def test_a_string_is_a_script(box):
    assert box.exec("echo a; echo b >&2; exit 3") == Result(3, b"a\n", b"b\n")


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV])
def test_a_signal_is_told_as_a_negative_code(box, number):
    assert box.exec(f"kill -{int(number)} $$").code == -number


def test_a_program_that_is_not_there_exits_127(box):
    assert box.exec(["/no/such/program"]).code == 127


def test_input_larger_than_a_pipe_arrives(box):
    data = os.urandom(3 << 20)
    assert box.exec("cat > f; cksum < f", stdin=data).stdout == subprocess.run(["cksum"], input=data, capture_output=True).stdout


def test_input_that_nobody_reads_is_no_fault(box):
    assert box.exec("exit 0", stdin=b"x" * (1 << 20)).code == 0


def test_a_child_that_holds_the_output_is_not_waited_for(box):
    result = box.exec("sleep 30 & echo started")
    assert (result.code, result.stdout, result.ended) == (0, b"started\n", None)


def test_output_at_its_bound_is_whole_and_one_byte_more_ends(box):
    assert len(box.exec("head -c 65536 /dev/zero").stdout) == 65536
    assert box.exec("head -c 65537 /dev/zero; sleep 5").ended == "output"


@settings(max_examples=25)
@given(st.dictionaries(st.from_regex(r"[A-Z_][A-Z0-9_]{0,5}", fullmatch=True), st.text(st.characters(exclude_characters="\0"))))
def test_variables_arrive_as_they_are(shared, env):
    taken = {"PATH", "HOME", "LANG", "PWD", "SHLVL", "_", "IFS", "OLDPWD", "PPID", "OPTIND", "UID", "EUID"}
    env = {name: value for name, value in env.items() if name not in taken and value.isprintable()}
    found = shared.exec(["/usr/bin/env", "-0"], env=env).stdout.decode().split("\0")
    assert {f"{name}={value}" for name, value in env.items()} <= set(found)


@pytest.mark.parametrize("name", ["A-B", "1A", "", "A=B", "A\nB", "LD_PRELOAD;x"])
def test_a_name_that_is_no_variable_is_refused(box, name):
    with pytest.raises(ConfigError, match="no variable"):
        box.exec("true", env={name: "x"})


def test_a_library_in_the_variables_is_not_loaded_outside(box, tmp_path):
    assert (
        box.exec("echo fine", env={"LD_PRELOAD": "/workspace/evil.so", "BASH_ENV": "/workspace/x", "PATH": "/usr/bin"}).stdout
        == b"fine\n"
    )


def test_files_go_in_and_come_out(box):
    put(box, "deep/er/a file", b"\0\xff\n" * 1000)
    assert get(box, "deep/er/a file") == b"\0\xff\n" * 1000


def test_a_file_that_runs(box):
    put(box, "bin/run", b"#!/bin/sh\necho ran\n", executable=True)
    assert box.exec("bin/run").stdout == b"ran\n"


@pytest.mark.parametrize("path", ["nothing", "/proc/self", "/dev/null"])
def test_what_is_no_file_is_not_read(box, path):
    with pytest.raises(DataError, match="no such file"):
        get(box, path)


def test_a_file_larger_than_asked_for_is_not_read(box):
    box.exec("head -c 1000 /dev/zero > f")
    with pytest.raises(DataError, match="output"):
        get(box, "f", at_most=999)


def test_a_place_that_cannot_be_written_says_why(box):
    with pytest.raises(DataError, match="Read-only file system"):
        put(box, "/usr/x", b"")


def test_a_snapshot_comes_back_and_nothing_else(box):
    box.exec("mkdir -p a/b; echo 1 > a/b/f; ln -s f a/b/l; chmod 750 a/b/f")
    before = snapshot(box)
    box.exec("rm -r a; touch .hidden other; mkdir -m 0 locked; sleep 30 & exit")
    restore(box, before)
    assert box.exec("find | sort; stat -c %a a/b/f; readlink a/b/l").stdout.split() == b". ./a ./a/b ./a/b/f ./a/b/l 750 f".split()
    assert snapshot(box) == before


def test_the_same_files_make_the_same_snapshot(box):
    box.exec("echo 1 > b; echo 2 > a")
    first = snapshot(box)
    box.exec("rm a b; echo 2 > a; echo 1 > b; touch -d 2001-01-01 a")
    assert snapshot(box) == first


def test_no_archive_is_refused(box):
    with pytest.raises(DataError, match="cannot be restored"):
        restore(box, b"no archive")


def test_a_closed_sandbox_has_died():
    sandbox = Bubblewrap(Limits())
    sandbox.close()
    sandbox.close()
    sandbox.end_processes()
    assert sandbox.exec("true").ended == "died"


def test_many_open_files_are_no_matter():
    """The shell inside closes what it has read by numbers of two digits."""
    files = [open(os.devnull) for _ in range(40)]  # noqa: SIM115
    try:
        with Bubblewrap(Limits()) as sandbox:
            assert sandbox.exec("ls /proc/self/fd | tr -d '\\n'").stdout in (b"0123", b"012")
    finally:
        for file in files:
            file.close()


def test_a_folder_of_this_machine_can_be_shown(tmp_path):
    (tmp_path / "tool").write_text("hello")
    if os.geteuid() == 0:
        for folder in (tmp_path, *tmp_path.parents[:-1]):
            folder.chmod(folder.stat().st_mode | 0o055)
    with Bubblewrap(Limits(), paths=[str(tmp_path)]) as sandbox:
        assert sandbox.exec(f"cat {tmp_path}/tool; echo x > {tmp_path}/tool").stdout == b"hello"


@pytest.mark.parametrize("path", ["relative", "/no/such/folder", "/etc/passwd"])
def test_a_path_that_is_no_folder_is_refused(path):
    with pytest.raises(ConfigError, match="no folder"):
        Bubblewrap(Limits(), paths=[path])


@pytest.mark.skipif(os.geteuid() != 0, reason="programs run as this user, who may read it")
def test_a_folder_that_others_may_not_enter_says_what_to_do(tmp_path):
    inner = tmp_path / "private" / "agent"
    inner.mkdir(parents=True)
    inner.parent.chmod(0o700)
    with pytest.raises(ConfigError, match="Permission denied") as refused:
        Bubblewrap(Limits(), paths=[str(inner)])
    assert "let all users read this folder" in str(refused.value.fix)


def test_a_missing_program_says_what_to_install(monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(ConfigError, match=r"no program 'bwrap'(.|\n)*apt-get install bubblewrap"):
        Bubblewrap(Limits())


def test_a_kernel_that_refuses_says_what_to_set(monkeypatch, tmp_path):
    fake = tmp_path / "bwrap"
    fake.write_text("#!/bin/sh\necho 'bwrap: No permissions to create new namespace' >&2; exit 1\n")
    fake.chmod(0o755)
    find = shutil.which
    monkeypatch.setattr(shutil, "which", lambda name: str(fake) if name == "bwrap" else find(name))
    monkeypatch.setattr(Bubblewrap, "_dropped_user", lambda self: [])
    with pytest.raises(ConfigError, match=r"No permissions(.|\n)*unprivileged_userns_clone"):
        Bubblewrap(Limits())


def test_a_provider_is_found_by_name():
    sandbox = open_sandbox("bubblewrap", Limits(), {})
    assert isinstance(sandbox, Bubblewrap)
    sandbox.close()


OWNER = """
import sys
from clawpipe.play.sandbox.base import Limits
from clawpipe.play.sandbox.bubblewrap import Bubblewrap
box = Bubblewrap(Limits(seconds=60))
print("open", flush=True)
while True:
    box.exec(f"(setsid sleep 4711{sys.argv[1]} &); sleep 0.0{sys.argv[1][-1]}; sleep 4711{sys.argv[1]} & sleep 0.02")
"""


def _left(mark: str) -> list[str]:
    shown = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
    return [line for line in shown.splitlines() if f"sleep 4711{mark}" in line and "python" not in line]


def _kill_after(mark: str, seconds: float) -> None:
    """Start an owner of a sandbox, and kill it `seconds` after its start."""
    owner = subprocess.Popen([sys.executable, "-c", OWNER, mark], stdout=subprocess.DEVNULL)
    try:
        owner.wait(seconds)
    except subprocess.TimeoutExpired:
        owner.kill()
        owner.wait()


def _wait_until_gone(mark: str) -> None:
    for _ in range(400):
        if not _left(mark):
            return
        subprocess.run(["sleep", "0.025"], check=True)
    raise AssertionError(_left(mark))


def test_a_killed_owner_leaves_no_process():
    owner = subprocess.Popen([sys.executable, "-c", OWNER, "777"], stdout=subprocess.PIPE)
    assert owner.stdout is not None
    assert owner.stdout.readline() == b"open\n"
    while not _left("777"):
        assert owner.poll() is None
    owner.kill()
    owner.wait()
    owner.stdout.close()
    _wait_until_gone("777")


@pytest.mark.long
def test_no_process_is_left_after_fifty_kills():
    holders = _holders()
    for number in range(50):
        mark = f"8{number:02d}"
        _kill_after(mark, 0.1 + number * 0.03)
        _wait_until_gone(mark)
    for _ in range(400):
        if _holders() <= holders:
            return
        subprocess.run(["sleep", "0.025"], check=True)
    raise AssertionError("a bubblewrap lives on")


def _holders() -> set[str]:
    return set(subprocess.run(["pgrep", "-x", "bwrap"], capture_output=True, text=True).stdout.split())
