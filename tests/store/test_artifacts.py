import pyarrow as pa
import pytest

from clawpipe.core.store.artifacts import Store
from clawpipe.core.store.datasets import dataset_files, dataset_ref, publish_dataset, publish_files, read_dataset
from clawpipe.core.store.refs import DatasetRef
from clawpipe.errors import DataError

TABLE = pa.table({"id": ["a", "b"], "logprobs": pa.array([[-0.5, 0.0], [-1.25]], pa.list_(pa.float32()))})


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "store")


def test_dataset_comes_back_as_it_was_written(store):
    ref = publish_dataset(store, "samples", [TABLE, TABLE.slice(1)])
    assert ref.rows == 3
    assert read_dataset(store, ref).equals(pa.concat_tables([TABLE, TABLE.slice(1)]))


def test_equal_content_has_one_name_and_is_written_once(store):
    first = publish_dataset(store, "samples", [TABLE], parents=["x"])
    written = dataset_files(store, first)[0].stat().st_mtime_ns
    second = publish_dataset(store, "samples", [TABLE], parents=["y"])
    assert first.digest == second.digest
    assert dataset_files(store, second)[0].stat().st_mtime_ns == written


def test_files_that_are_already_parquet_are_taken_as_they_are(store):
    parts = [publish_dataset(store, "samples", [TABLE]), publish_dataset(store, "samples", [TABLE.slice(0, 1)])]
    union = publish_files(store, "samples", [file for part in parts for file in dataset_files(store, part)])
    assert union.digest == publish_dataset(store, "samples", [TABLE, TABLE.slice(0, 1)]).digest


@pytest.mark.parametrize("damage", ["flip", "delete", "truncate", "manifest"])
def test_any_damaged_byte_is_found_and_repaired_by_a_rewrite(store, damage):
    ref = publish_dataset(store, "samples", [TABLE])
    file = dataset_files(store, ref)[0]
    data = bytearray(file.read_bytes())
    if damage == "delete":
        file.unlink()
    elif damage == "manifest":
        (file.parent / "manifest.json").write_text("{}")
    else:
        data[len(data) // 2] ^= 1
        file.write_bytes(data[:-1] if damage == "truncate" else data)
    assert not store.intact(ref)
    with pytest.raises(DataError, match="damaged"):
        read_dataset(store, ref)
    assert publish_dataset(store, "samples", [TABLE]) == ref
    assert read_dataset(store, ref).equals(TABLE)


def test_a_failed_writer_leaves_nothing(store):
    def fail(directory):
        (directory / "half").write_text("half")
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        store.publish("samples", fail)
    assert [path for path in store.root.rglob("*") if path.is_file()] == []


def test_sweep_removes_what_a_killed_writer_left(store):
    left = store.root / ".staging" / "samples-1"
    left.mkdir(parents=True)
    (left / "part").write_text("half")
    assert store.sweep() == 1
    assert not left.exists()


@pytest.mark.parametrize("name", ["../samples", "a/b", "", "."])
def test_a_name_cannot_leave_the_store(store, name):
    with pytest.raises(DataError, match="cannot name an artifact"):
        store.path(DatasetRef(name=name, digest="0", rows=0))


def test_ref_of_a_digest_knows_its_rows(store):
    ref = publish_dataset(store, "samples", [TABLE])
    assert dataset_ref(store, "samples", ref.digest).rows == 2
