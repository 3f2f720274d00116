"""The store that several homes share: the same on S3 (moto's server), on a disk and in memory."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import fsspec
import pyarrow as pa
import pytest

from clawpipe.core.store.artifacts import Store
from clawpipe.core.store.datasets import dataset_ref, publish_dataset, read_dataset, stored_datasets
from clawpipe.core.store.digests import canonical_json, sha256_bytes
from clawpipe.core.store.files import MANIFEST
from clawpipe.core.store.home import Home
from clawpipe.core.store.open import open_store
from clawpipe.core.store.records import find_record
from clawpipe.core.store.refs import DatasetRef, StepResult
from clawpipe.core.store.remote import Remote
from clawpipe.core.store.replaced import current_digest, note_replaced, replaced
from clawpipe.errors import BusyError, ConfigError, DataError

each = pytest.mark.parametrize("storage", ["s3", "file", "memory"], indirect=True)
TABLE = pa.table({"id": ["a", "b"]})
FILES = {"one": b"first", "deep/er/two": b"second", "empty": b""}


class Shared:
    """A URL, homes that share it, and the objects there."""

    def __init__(self, url: str, folder: Path) -> None:
        self.url, self._folder = url, folder
        self.system, root = fsspec.url_to_fs(url)
        self.root = root.rstrip("/")

    def home(self, name: str) -> Store:
        return Store(self._folder / name / "store", Remote(self.url))

    def objects(self) -> dict[str, bytes]:
        self.system.invalidate_cache()
        return {path.removeprefix(f"{self.root}/"): self.system.cat_file(path) for path in self.system.find(self.root)}

    def write(self, path: str, data: bytes) -> None:
        self.system.makedirs(self.system._parent(f"{self.root}/{path}"), exist_ok=True)
        self.system.pipe_file(f"{self.root}/{path}", data)

    def lose(self, path: str) -> None:
        self.system.rm_file(f"{self.root}/{path}")


@pytest.fixture
def shared(storage: str, tmp_path: Path) -> Iterator[Shared]:
    shared = Shared(storage, tmp_path)
    yield shared
    if storage.startswith("memory"):
        shared.system.rm(shared.root.rpartition("/")[0], recursive=True)


def writing(files: dict[str, bytes]) -> Callable[[Path], dict[str, Any]]:
    def fill(directory: Path) -> dict[str, Any]:
        for path, data in files.items():
            (directory / path).parent.mkdir(parents=True, exist_ok=True)
            (directory / path).write_bytes(data)
        return {"kind": "thing"}

    return fill


def put(store: Store, files: dict[str, bytes] = FILES) -> DatasetRef:
    digest, _ = store.publish("things", writing(files))
    return DatasetRef(name="things", digest=digest, rows=0)


def contents(directory: Path) -> dict[str, bytes]:
    files = {path.relative_to(directory).as_posix(): path.read_bytes() for path in directory.rglob("*") if path.is_file()}
    return {path: data for path, data in files.items() if path != MANIFEST}


@each
def test_what_one_home_writes_another_reads_byte_for_byte(shared):
    ref = put(shared.home("one"))
    assert sha256_bytes(shared.objects()[f"things/{ref.digest}/{MANIFEST}"]) == ref.digest
    other = shared.home("other")
    assert not other.path(ref).exists()
    assert contents(other.require(ref)) == FILES
    assert list(other.here()) == list(other.names()) == [("things", ref.digest)]


@each
def test_what_is_there_is_not_written_again(shared, monkeypatch):
    put(shared.home("one"))
    before = {path: shared.system.modified(path) for path in shared.system.find(shared.root)}
    monkeypatch.setattr(type(shared.system), "put_file", None)
    put(shared.home("one"))
    put(shared.home("other"))
    assert {path: shared.system.modified(path) for path in shared.system.find(shared.root)} == before


def test_the_server_gets_each_object_once(object_storage, bucket, tmp_path):
    shared = Shared(f"s3://{bucket}/some/prefix", tmp_path)
    ref = put(shared.home("one"))
    written = object_storage.requests("PUT", f"{bucket}/")
    assert written == len(FILES) + 1
    put(shared.home("one"))
    put(shared.home("other"))
    shared.home("third").require(ref)
    assert object_storage.requests("PUT", f"{bucket}/") == written


@each
@pytest.mark.parametrize("lost", ["one", MANIFEST])
def test_a_damaged_object_is_found_and_repaired(shared, lost):
    ref = put(shared.home("one"))
    path = f"things/{ref.digest}/{lost}"
    shared.write(path, shared.objects()[path][::-1])
    other = shared.home("other")
    assert not other.intact(ref)
    with pytest.raises(DataError, match="damaged") as caught:
        other.require(ref)
    assert path in caught.value.where
    assert "publish it again" in caught.value.fix
    assert list(other.here()) == []
    put(shared.home("one"))
    assert contents(other.require(ref)) == FILES


@each
def test_a_lost_object_shows_and_comes_back(shared):
    ref = put(shared.home("one"))
    shared.lose(f"things/{ref.digest}/deep/er/two")
    with pytest.raises(DataError, match="missing a file"):
        shared.home("other").require(ref)
    put(shared.home("third"))  # who makes it anew
    assert contents(shared.home("other").require(ref)) == FILES


@each
@pytest.mark.parametrize("damage", ["flip", "delete", "manifest", "all"])
def test_a_damaged_copy_is_replaced_by_the_shared_one(shared, damage):
    store = shared.home("one")
    directory = store.path(put(store))
    ref = DatasetRef(name="things", digest=directory.name, rows=0)
    if damage == "flip":
        (directory / "one").write_bytes(b"First")
    elif damage == "delete":
        (directory / "one").unlink()
    elif damage == "manifest":
        (directory / MANIFEST).write_bytes(b"{}")
    else:
        store.evict(ref)
    assert shared.home("one").intact(ref)
    assert contents(store.require(ref)) == FILES


@each
def test_without_manifest_it_is_invisible_and_swept_when_old(shared):
    ref = put(shared.home("one"))
    whole = put(shared.home("one"), {"other": b"x"})
    shared.lose(f"things/{ref.digest}/{MANIFEST}")
    store, remote = shared.home("other"), Remote(shared.url)
    assert list(store.names()) == [("things", whole.digest)]
    assert not store.has(ref)
    with pytest.raises(DataError, match="missing"):
        store.require(ref)
    assert [path.rpartition("/")[2] for path in remote.sweep(settling=3600.0)] == [ref.digest]
    assert len(shared.objects()) == 5
    assert remote.sweep(settling=0.0) == []
    assert sorted(shared.objects()) == sorted([f"things/{whole.digest}/other", f"things/{whole.digest}/{MANIFEST}"])


@each
def test_a_slow_writer_whose_files_were_swept_writes_them_again(shared, monkeypatch):
    def point(name: str, detail: str = "") -> None:
        if name == "store.before_manifest":
            Remote(shared.url).sweep(settling=0.0)

    monkeypatch.setattr("clawpipe.core.system.faults.kill_point", point)
    ref = put(shared.home("one"))
    assert contents(shared.home("other").require(ref)) == FILES


@each
def test_removal_takes_it_from_here_and_there(shared):
    store = shared.home("one")
    ref, other = put(store), put(store, {"other": b"x"})
    assert store.remove(ref)
    assert not store.remove(ref)
    assert not store.path(ref).exists()
    assert {path.split("/")[1] for path in shared.objects()} == {other.digest}
    assert shared.home("two").remove(other)  # who has no copy
    assert shared.objects() == {}


@each
def test_a_removed_copy_is_fetched_again_when_needed(shared):
    store = shared.home("one")
    ref = publish_dataset(store, "samples", [TABLE])
    assert store.evict(ref)
    assert store.has(ref)
    assert [(found.digest, found.rows) for found in stored_datasets(store)] == [(ref.digest, 2)]
    assert not store.path(ref).exists()  # the manifest was enough
    assert read_dataset(store, dataset_ref(store, "samples", ref.digest)).equals(TABLE)


def test_a_store_that_refuses_is_no_store_without_datasets(tmp_path, monkeypatch):
    shared = Shared(f"file://{tmp_path}/share", tmp_path)
    publish_dataset(shared.home("one"), "samples", [TABLE])

    def refuse(path: str) -> bytes:
        raise PermissionError("AccessDenied")

    monkeypatch.setattr(shared.system, "cat_file", refuse)
    with pytest.raises(ConfigError, match="refuses: AccessDenied"):
        stored_datasets(shared.home("other"))


@each
def test_homes_agree_on_what_took_the_place_of_what(shared):
    one, two = shared.home("one"), shared.home("two")
    note_replaced(one, {"a": "b"})
    note_replaced(two, {"a": "c", "b": "d"})
    assert replaced(one) == replaced(two) == {"a": "b", "b": "d"}
    assert json.loads((one.root / "replaced.json").read_bytes()) == {"a": "b", "b": "d"}
    assert [current_digest(shared.home("three"), digest) for digest in "abcx"] == ["d", "d", "c", "x"]


@each
def test_a_sweep_takes_copies_of_what_another_home_replaced(shared):
    one, two = shared.home("one"), shared.home("two")
    old, stays = put(one), put(one, {"other": b"x"})
    two.require(old)
    two.require(stays)
    note_replaced(one, {old.digest: stays.digest})
    one.remove(old)
    assert two.path(old).exists()
    two.sweep()
    assert list(two.here()) == [("things", stays.digest)]


def test_a_made_up_manifest_does_not_reach_out(tmp_path):
    shared = Shared(f"file://{tmp_path}/share", tmp_path)
    for path in ("../../../escaped", "/tmp/escaped"):
        manifest = canonical_json({"files": [{"path": path, "bytes": 1, "sha256": sha256_bytes(b"x")}]})
        digest = sha256_bytes(manifest)
        shared.write(f"things/{digest}/{MANIFEST}", manifest)
        with pytest.raises(DataError, match="outside"):
            shared.home("one").require(DatasetRef(name="things", digest=digest, rows=0))
    assert not list(tmp_path.rglob("escaped"))


def test_other_peoples_objects_are_not_artifacts(tmp_path):
    shared = Shared(f"file://{tmp_path}/share", tmp_path)
    ref = put(shared.home("one"))
    for path in (".hidden/x/manifest.json", "note.txt", "a b/c/manifest.json", "things/x.y/manifest.json"):
        shared.write(path, b"{}")
    assert list(shared.home("two").names()) == [("things", ref.digest)]


def test_a_disk_shows_nothing_half_written(tmp_path, monkeypatch):
    """The copy is made aside: a killed one leaves a name that no reader asks for, and the next writer completes the artifact."""
    shared = Shared(f"file://{tmp_path}/share", tmp_path)

    def die(source: Path, target: Path) -> None:
        target.write_bytes(b"half")
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("shutil.copyfile", die)
        with pytest.raises(KeyboardInterrupt):
            put(shared.home("one"))
    assert shared.objects() == {}
    ref = put(shared.home("one"))
    assert contents(shared.home("two").require(ref)) == FILES


def test_a_step_stays_cached_when_only_the_copy_is_gone(home, tmp_path, monkeypatch):
    monkeypatch.setenv("CLAWPIPE_STORE", f"file://{tmp_path}/share")
    store = open_store(home)
    ref = publish_dataset(store, "samples", [TABLE])
    body = {"__class__": "clawpipe.core.store.refs.StepResult", "data": StepResult(output=ref).model_dump(mode="json")}
    home.steps.mkdir(parents=True)
    (home.steps / "curate-1").write_text(json.dumps({"metadata": {"serializer": {"type": "json"}}, "result": json.dumps(body)}))
    store.evict(ref)
    assert find_record(home, "curate-1") == StepResult(output=ref)
    [file] = (tmp_path / "share" / "samples" / ref.digest).glob("*.parquet")
    file.write_bytes(b"?")
    assert find_record(home, "curate-1") is not None  # the copy came back
    store.evict(ref)
    assert find_record(home, "curate-1") is None


def test_the_environment_says_where(home, monkeypatch, tmp_path):
    assert open_store(home).remote is None
    monkeypatch.setenv("CLAWPIPE_STORE", f"file://{tmp_path}/share")
    ref = publish_dataset(open_store(home), "samples", [TABLE])
    assert read_dataset(open_store(Home(tmp_path / "second")), ref).equals(TABLE)
    assert (tmp_path / "share" / "samples" / ref.digest / MANIFEST).exists()


@pytest.mark.parametrize(
    ("url", "what"),
    [
        ("/mnt/share", "no URL"),
        ("simplecache::s3://bucket", "no URL"),
        ("nope://x", "nope"),
        ("gs://bucket/prefix", "not installed"),
        ("ftp://me:secret@host/x", "password"),
    ],
)
def test_a_url_that_cannot_be_used_says_why(tmp_path, url, what):
    with pytest.raises(ConfigError, match=what) as caught:
        put(Store(tmp_path, Remote(url)))
    assert "secret" not in str(caught.value)


def test_a_missing_library_names_the_extra(tmp_path, monkeypatch):
    def missing(url: str) -> None:
        raise ImportError("Install s3fs to access S3")

    monkeypatch.setattr(fsspec, "url_to_fs", missing)
    with pytest.raises(ConfigError, match=r"pip install 'clawpipe\[s3\]'"):
        put(Store(tmp_path, Remote("s3://bucket")))


def test_a_bucket_that_is_not_there_is_told(bucket, tmp_path):
    store = Store(tmp_path / "store", Remote(f"s3://{bucket}-not/prefix"))
    with pytest.raises(ConfigError, match="not there"):
        put(store)
    with pytest.raises(ConfigError, match="not there"):
        store.sweep()


@pytest.mark.slow
def test_without_the_server_local_artifacts_are_readable(bucket, tmp_path, monkeypatch):
    ref = put(Store(tmp_path / "store", Remote(f"s3://{bucket}/prefix")))
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    type(fsspec.filesystem("s3")).clear_instance_cache()
    away = Store(tmp_path / "store", Remote(f"s3://{bucket}/prefix"))
    assert contents(away.require(ref)) == FILES
    with pytest.raises(BusyError, match="does not answer"):
        list(away.names())
    type(fsspec.filesystem("s3")).clear_instance_cache()
