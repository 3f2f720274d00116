"""From one major version to the next, on a contract that is made up: `score` becomes `value`, a fraction."""

import pyarrow as pa
import pytest
import yaml

from clawpipe.core.contracts import odcs
from clawpipe.core.contracts.validate import migrate, validate
from clawpipe.core.store.datasets import publish_dataset, read_dataset
from clawpipe.errors import DataError, NotFoundError

NAME = "marks"
SQL = "select id, note, score / 100.0::double as value from old"


def contract(version, columns):
    table = {"name": NAME, "logicalType": "object", "physicalType": "table", "dataGranularityDescription": "x"}
    head = {"apiVersion": "v3.1.0", "kind": "DataContract", "id": NAME, "name": NAME, "version": version, "status": "active"}
    return yaml.safe_dump(head | {"description": {"purpose": "x"}, "schema": [table | {"properties": columns}]})


ID = {"name": "id", "logicalType": "string", "required": True, "primaryKey": True, "primaryKeyPosition": 1}
NOTE = {"name": "note", "logicalType": "string"}
SCORE = {"name": "score", "logicalType": "integer", "required": True, "logicalTypeOptions": {"format": "i32"}}
VALUE = {"name": "value", "logicalType": "number", "required": True, "logicalTypeOptions": {"format": "f64", "maximum": 1}}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    folder = tmp_path / "contracts" / NAME
    (folder / "migrations").mkdir(parents=True)
    (folder / "v1.odcs.yaml").write_text(contract("1.1.0", [ID, SCORE, NOTE]))
    (folder / "v2.odcs.yaml").write_text(contract("2.0.0", [ID, NOTE, VALUE]))
    (folder / "migrations" / "v1_to_v2.sql").write_text(SQL)
    (tmp_path / "contracts" / "quarantine").symlink_to(str(odcs.folder_of("quarantine")))  # where rows at fault go
    monkeypatch.setattr(odcs, "ROOT", tmp_path / "contracts")
    odcs.load_contract.cache_clear()
    yield folder
    odcs.load_contract.cache_clear()


def published(store, *parts):
    return publish_dataset(store, NAME, [pa.table(part) for part in parts])


def score(*values):
    return pa.array(values, pa.int32())


def test_a_dataset_of_the_older_version_is_migrated(folder, store):
    old = published(
        store, {"id": ["b", "a"], "score": score(50, 100)}, {"id": ["c"], "score": score(0), "note": ["x"]}
    )  # 1.0 and 1.1
    new = migrate(store, old, NAME)
    assert (new.schema_version, new.rows, new.parents) == ("2", 3, (old.digest,))
    assert read_dataset(store, new).to_pylist() == [
        {"id": "b", "note": None, "value": 0.5},
        {"id": "a", "note": None, "value": 1.0},
        {"id": "c", "note": "x", "value": 0.0},
    ]
    assert migrate(store, old, NAME) == new  # equal input, equal bytes
    assert migrate(store, new, NAME) is new


def test_validation_migrates_first(folder, store):
    result = validate(store, published(store, {"id": ["a", "b"], "score": score(50, 101)}), NAME)
    assert (result.rows_in, result.rows_out, result.filtered) == (2, 1, {"value: above 1": 1})
    assert result.dataset.schema_version == "2"
    assert read_dataset(store, result.dataset)["value"].to_pylist() == [0.5]


def test_rows_keep_their_order_over_many_parts(folder, store):
    ids = [f"{number * 7919 % 20000:05d}" for number in range(20000)]
    old = published(store, *({"id": ids[start : start + 5000], "score": score(*range(5000))} for start in range(0, 20000, 5000)))
    assert read_dataset(store, migrate(store, old, NAME, threads=2))["id"].to_pylist() == ids


@pytest.mark.parametrize(
    ("sql", "told"),
    [
        ("select id, note, value from old", "the migration failed: Binder Error"),
        ("select id, note, id as value from old", "the migration failed"),
        ("select id, score / 100.0 as value from old", "gives the columns"),
        (f"{SQL} where score > 0", "made 1 rows of 2"),
        ("select * from read_parquet('/etc/passwd')", "the migration failed: Permission Error"),
    ],
)
def test_a_migration_that_does_not_do_its_work_is_told(sql, told, folder, store):
    (folder / "migrations" / "v1_to_v2.sql").write_text(sql)
    with pytest.raises(DataError, match=rf"marks/migrations/v1_to_v2\.sql on marks/.*{told}"):
        migrate(store, published(store, {"id": ["a", "b"], "score": score(0, 1)}), NAME)


def test_a_version_without_a_way_on_is_told(folder, store):
    (folder / "migrations" / "v1_to_v2.sql").unlink()
    with pytest.raises(NotFoundError, match="no migration of 'marks' from version 1 to 2"):
        migrate(store, published(store, {"id": ["a"], "score": score(0)}), NAME)
    with pytest.raises(NotFoundError, match="no version '7'"):
        migrate(store, publish_dataset(store, NAME, [pa.table({"id": ["a"]})], schema_version="7"), NAME)
