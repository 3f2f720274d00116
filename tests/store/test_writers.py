"""Several processes write one store at once; a disk that is full leaves what was there."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pyarrow as pa
import pytest

from clawpipe.core.store.artifacts import STAGING, Store, staging
from clawpipe.core.store.datasets import publish_dataset, read_dataset, stored_datasets
from clawpipe.core.store.replaced import current_digest, note_replaced, replaced

TABLE = pa.table({"id": list(range(1000))})
_BEGIN = """
    import resource, sys
    from pathlib import Path
    import pyarrow as pa
    from clawpipe.core.store.artifacts import Store, staging
    from clawpipe.core.store.files import write_atomic
    from clawpipe.core.store.datasets import publish_dataset
    from clawpipe.core.store.replaced import note_replaced
    root = Path(sys.argv[1])
    store = Store(root)
"""


def child(root: Path, code: str, *arguments: str) -> subprocess.Popen[str]:
    """A process that runs `code` after `_BEGIN` and waits for a line on its stdin where the code says so."""
    source = textwrap.dedent(_BEGIN) + textwrap.dedent(code)
    command = [sys.executable, "-c", source, str(root), *arguments]
    return subprocess.Popen(command, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def finish(process: subprocess.Popen[str], line: str = "\n") -> str:
    out, err = process.communicate(line, timeout=60)
    assert process.returncode == 0, err
    return out.strip()


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


def leftovers(store: Store) -> list[Path]:
    return list((store.root / STAGING).glob("*"))


@pytest.mark.slow
def test_one_artifact_is_made_by_many_processes_at_once(store):
    code = """
        print("ready", flush=True)
        sys.stdin.readline()
        for number in range(20):
            ref = publish_dataset(store, "numbers", [pa.table({"id": list(range(number, number + 1000))})])
        print(ref.digest)
    """
    writers = [child(store.root, code) for _ in range(3)]
    for writer in writers:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "ready\n"
    for writer in writers:
        assert writer.stdin is not None
        writer.stdin.write("\n")
        writer.stdin.flush()
    assert len({finish(writer, "") for writer in writers}) == 1
    found = stored_datasets(store)
    assert len(found) == 20
    assert all(map(store.intact, found))
    assert leftovers(store) == []


@pytest.mark.slow
def test_a_damaged_artifact_is_repaired_by_many_at_once(store):
    ref = publish_dataset(store, "numbers", [TABLE])
    [part] = store.path(ref).glob("*.parquet")
    part.write_bytes(b"?")
    code = """
        sys.stdin.readline()
        publish_dataset(store, "numbers", [pa.table({"id": list(range(1000))})])
    """
    for writer in [child(store.root, code) for _ in range(3)]:
        finish(writer)
    assert read_dataset(Store(store.root), ref).equals(TABLE)


def test_a_sweep_spares_live_writers_and_removes_killed_ones(store):
    code = """
        with staging(root, "numbers") as directory:
            (directory / "part").write_text("half")
            print(directory, flush=True)
            sys.stdin.readline()
    """
    writer = child(store.root, code)
    assert writer.stdout is not None
    directory = Path(writer.stdout.readline().strip())
    assert store.sweep() == 0
    assert (directory / "part").exists()
    writer.send_signal(signal.SIGKILL)
    writer.communicate(timeout=60)
    assert store.sweep() == 1
    assert not directory.exists()


def test_a_staging_directory_goes_with_its_block(store):
    def fail(directory: Path) -> None:
        (directory / "file").write_text("half")
        raise ValueError("odd")

    with pytest.raises(ValueError, match="odd"), staging(store.root, "x") as directory:
        fail(directory)
    assert leftovers(store) == []


def test_a_full_disk_in_the_middle_leaves_the_previous_state(store):
    """The limit on a file's size gives the error that a full disk gives: a write fails half-way."""
    before = publish_dataset(store, "numbers", [TABLE])
    (store.root / "note.json").write_text("{}")
    code = """
        resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
        noise = pa.table({"id": [f"{number * 2654435761 % 2**64:x}" for number in range(100_000)]})
        for attempt in (
            lambda: publish_dataset(store, "numbers", [pa.table({"id": [1]}), noise]),
            lambda: write_atomic(root / "note.json", b"x" * 30_000),
            lambda: note_replaced(store, {str(number): "x" * 64 for number in range(1000)}),
        ):
            try:
                attempt()
            except OSError as error:
                print(error.errno)
    """
    assert finish(child(store.root, code)).split() == [str(27)] * 3  # EFBIG
    assert stored_datasets(store) == [before]
    assert store.intact(before)
    assert (store.root / "note.json").read_text() == "{}"
    assert replaced(store) == {}
    assert leftovers(store) == []
    assert [path for path in store.root.iterdir() if path.name.startswith(".note") or path.name.startswith(".replaced.json")] == []


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting needs root")
def test_a_disk_that_is_really_full(tmp_path):
    place = tmp_path / "disk"
    place.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(place)], capture_output=True).returncode:
        pytest.skip("no file system can be mounted here")
    try:
        store = Store(place / "store")
        before = publish_dataset(store, "numbers", [TABLE])
        noise = pa.table({"id": [f"{number * 2654435761 % 2**64:x}" for number in range(100_000)]})
        with pytest.raises(OSError, match="space"):
            publish_dataset(store, "numbers", [TABLE, noise])
        assert stored_datasets(store) == [before]
        assert read_dataset(store, before).equals(TABLE)
        after = publish_dataset(store, "numbers", [TABLE.slice(0, 10)])  # the room is there again
        assert store.intact(after)
    finally:
        subprocess.run(["umount", str(place)], check=True)


def test_what_is_published_is_on_disk_before_it_is_seen(store, monkeypatch):
    """Every file, every directory on the way and the parent of the new name are synced; the parent after the rename."""
    calls = []
    rename, sync = os.replace, os.fsync

    def replace(source, target):
        calls.append(("rename", Path(target)))
        rename(source, target)

    def fsync(descriptor):
        calls.append(("sync", Path(os.readlink(f"/proc/self/fd/{descriptor}"))))
        sync(descriptor)

    def fill(directory: Path) -> dict:
        (directory / "deep" / "er").mkdir(parents=True)
        (directory / "deep" / "er" / "file").write_text("x")
        return {}

    monkeypatch.setattr(os, "replace", replace)
    monkeypatch.setattr(os, "fsync", fsync)
    _, final = store.publish("thing", fill)
    renamed = calls.index(("rename", final))
    before = {path.name for kind, path in calls[:renamed] if kind == "sync"}
    assert {"file", "er", "deep", "manifest.json", "store"} <= before
    assert any(path.parent.name == STAGING for kind, path in calls[:renamed] if kind == "sync")
    assert ("sync", final.parent) in calls[renamed:]


def test_removal_is_one_step_and_leaves_the_others(store):
    one, other = publish_dataset(store, "numbers", [TABLE]), publish_dataset(store, "numbers", [TABLE.slice(1)])
    assert store.remove(one)
    assert not store.remove(one)
    assert stored_datasets(store) == [other]
    assert leftovers(store) == []


def test_replacements_of_many_processes_are_all_noted(store):
    store.root.mkdir()
    code = """
        for number in range(20):
            note_replaced(store, {f"{sys.argv[2]}-{number}": "new"})
    """
    for writer in [child(store.root, code, name) for name in "abc"]:
        finish(writer)
    assert replaced(store) == {f"{name}-{number}": "new" for name in "abc" for number in range(20)}


def test_the_end_of_a_chain_is_what_counts(store):
    note_replaced(store, {"a": "b"})
    note_replaced(store, {"b": "c", "x": "y"})
    assert [current_digest(store, digest) for digest in "abcz"] == ["c", "c", "c", "z"]
    note_replaced(store, {"c": "a"})  # a file that somebody edited: it ends all the same
    assert current_digest(store, "a") in "abc"
