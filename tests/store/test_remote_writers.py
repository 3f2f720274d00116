"""Several processes, with caches of their own, write one shared store; one is killed in the middle."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import fsspec
import pytest

from clawpipe.core.store.artifacts import Store
from clawpipe.core.store.refs import DatasetRef
from clawpipe.core.store.remote import Remote

pytestmark = [pytest.mark.slow, pytest.mark.parametrize("storage", ["s3", "file"], indirect=True)]
_CODE = """
    import sys
    from pathlib import Path
    from clawpipe.core.store.artifacts import Store
    from clawpipe.core.store.remote import Remote
    store, numbers = Store(Path(sys.argv[1]), Remote(sys.argv[2])), sys.argv[3:]
    def fill(number):
        def write(directory):
            for part in range(3):
                (directory / f"part-{part}").write_text(f"{number}/{part}" * 1000)
            return {"number": number}
        return write
    print("ready", flush=True)
    sys.stdin.readline()
    for number in numbers:
        print(store.publish("numbers", fill(number))[0], flush=True)
"""


def writer(cache: Path, url: str, *numbers: int, **env: str) -> subprocess.Popen[str]:
    """A process that publishes these once it is told to."""
    command = [sys.executable, "-W", "error", "-c", textwrap.dedent(_CODE), str(cache), url, *map(str, numbers)]
    pipe = subprocess.PIPE
    process = subprocess.Popen(command, text=True, stdin=pipe, stdout=pipe, stderr=pipe, env={**os.environ, **env})
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def finish(process: subprocess.Popen[str]) -> tuple[list[str], str]:
    out, err = process.communicate("\n", timeout=120)
    return out.split(), err


def objects(url: str) -> list[str]:
    system, root = fsspec.url_to_fs(url)
    system.invalidate_cache()
    return [path.removeprefix(f"{root}/") for path in system.find(root)]


def test_processes_write_the_same_and_others_at_once(storage, tmp_path):
    writers = [writer(tmp_path / name, storage, *numbers) for name, numbers in (("one", (0, 1, 2)), ("two", (0, 1, 3)))]
    for process in writers:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
    (one, said), (two, also_said) = map(finish, writers)
    assert (said, also_said) == ("", "")  # warnings are errors: no session or loop is left open
    assert one[:2] == two[:2]
    digests = {*one, *two}
    assert len(digests) == 4
    assert len(objects(storage)) == 4 * 4  # three parts and a manifest each; nothing twice
    reader = Store(tmp_path / "reader", Remote(storage))
    assert {digest for _, digest in reader.names()} == digests
    assert all(reader.intact(DatasetRef(name="numbers", digest=digest, rows=0)) for digest in digests)


def test_a_kill_before_the_manifest_leaves_nothing_visible(storage, tmp_path):
    killed = writer(tmp_path / "one", storage, 7, CLAWPIPE_KILL_AT="store.before_manifest")
    finish(killed)
    assert killed.returncode == -signal.SIGKILL
    assert len(objects(storage)) == 3
    reader = Store(tmp_path / "reader", Remote(storage))
    assert list(reader.names()) == []
    again = writer(tmp_path / "two", storage, 7)  # another machine makes the same
    [digest], _ = finish(again)
    assert len(objects(storage)) == 4
    assert reader.intact(DatasetRef(name="numbers", digest=digest, rows=0))
