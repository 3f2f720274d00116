"""Records of finished steps: which file is believed, and which generation of a key is in force."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clawpipe.core.store.artifacts import Store
from clawpipe.core.store.datasets import publish_dataset
from clawpipe.core.store.home import Home
from clawpipe.core.store.records import find_record, live_record, parse_record
from clawpipe.core.store.refs import DatasetRef, StepResult

RESULT = StepResult(output=DatasetRef(name="numbers", digest="ab" * 32, rows=3), rows_in=4, rows_out=3, filtered={"odd": 1})


def record(
    result: object = RESULT.model_dump(mode="json"), class_name: str = "clawpipe.core.store.refs.StepResult", kind: str = "json"
) -> bytes:
    """As Prefect 3.8 writes one with its JSON serializer."""
    body = {"metadata": {"serializer": {"type": kind}}, "result": json.dumps({"__class__": class_name, "data": result})}
    return json.dumps(body).encode()


def test_what_prefect_writes_is_what_is_read():
    from prefect._internal.result_records import ResultRecord, ResultRecordMetadata
    from prefect.serializers import JSONSerializer

    written = ResultRecord(metadata=ResultRecordMetadata(storage_key="k", serializer=JSONSerializer()), result=RESULT).serialize()
    assert parse_record(written) == parse_record(record()) == RESULT


def test_the_record_of_an_earlier_version_is_read():
    assert parse_record(record().replace(b"filtered", b"set_aside")) == RESULT


@pytest.mark.parametrize(
    "data",
    [
        b"",
        record()[:-20],
        record(class_name="subprocess.Popen"),
        record(kind="pickle"),
        record(result={"unknown_field": 1}),
        json.dumps({"__exc_type__": "builtins.ValueError", "message": "x"}).encode(),
    ],
    ids=["empty", "truncated", "foreign class", "pickled", "other shape", "exception"],
)
def test_anything_else_is_no_record(data: bytes):
    assert parse_record(data) is None


FIELDS = st.sampled_from(["metadata", "result", "serializer", "type", "__class__", "data"])
VALUES = st.recursive(st.none() | st.text() | st.integers(), lambda inner: st.lists(inner) | st.dictionaries(FIELDS, inner))


@given(st.binary(max_size=200) | VALUES.map(lambda value: json.dumps(value).encode()))
def test_no_bytes_break_the_parser(data: bytes):
    assert parse_record(data) is None


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


def artifact(home: Home) -> DatasetRef:
    return publish_dataset(Store(home.store), "numbers", [pa.table({"x": [1, 2, 3]})])


def write(home: Home, *kinds: str) -> None:
    """One generation a kind: `whole` names an artifact that is there, `gone` one that is not, `damaged` is no record."""
    bodies = {
        "whole": record({"output": artifact(home).model_dump()}),
        "gone": record({"output": {"name": "numbers", "digest": "b" * 64, "rows": 1}}),
        "damaged": b"{",
    }
    home.steps.mkdir()
    for number, kind in enumerate(kinds):
        (home.steps / ("key" if number == 0 else f"key.r{number}")).write_bytes(bodies[kind])


@pytest.mark.parametrize(
    ("kinds", "key", "hit"),
    [
        ([], "key", False),
        (["whole"], "key", True),
        (["gone"], "key.r1", False),
        (["gone", "whole"], "key.r1", True),
        (["damaged", "gone"], "key.r2", False),
        (["damaged", "whole", "whole"], "key.r1", True),
    ],
)
def test_generation_in_force(home: Home, kinds: list[str], key: str, hit: bool):
    write(home, *kinds)
    found, result = live_record(home.steps, "key", Store(home.store))
    assert (found, result is not None) == (key, hit)
    assert find_record(home, "key") == result


def test_every_artifact_of_a_result_counts(home: Home):
    write(home)
    whole, gone = artifact(home).model_dump(), {"name": "n", "digest": "b" * 64, "rows": 1}
    (home.steps / "key").write_bytes(record({"output": whole, "extras": {"quarantine": gone}}))
    assert find_record(home, "key") is None
    (home.steps / "key").write_bytes(record({"rows_in": 1}))  # a step without artifacts has nothing to lose
    assert find_record(home, "key") == StepResult(rows_in=1)


def test_what_must_hold_besides_is_asked(home: Home):
    write(home, "whole", "whole")
    assert live_record(home.steps, "key", Store(home.store), lambda result: False) == ("key.r2", None)
    assert live_record(home.steps, "key", Store(home.store), lambda result: result.output == artifact(home))[0] == "key"
