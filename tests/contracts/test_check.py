"""What a check says of files and records, without writing anything."""

import json

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from clawpipe.core.contracts import contract_names, load_contract, schema_of
from clawpipe.core.contracts.check import check_parquet, check_records, contract_of, typed
from clawpipe.core.contracts.validate import validate
from clawpipe.core.store.datasets import dataset_files, read_dataset, write_parquet
from clawpipe.errors import DataError


def told(report):
    return {row["place"]: row["reasons"] for row in report.faulty}


@pytest.mark.parametrize("name", contract_names())
def test_records_and_files_that_keep_their_contract(name, store, valid, publish):
    row = json.loads(json.dumps(valid(name)))
    report = check_records([("a:1", row)], load_contract(name))
    assert (report.rows, report.kept, report.reasons, report.faulty) == (1, 1, {}, [])
    assert check_parquet(dataset_files(store, publish(name, [valid(name)])), load_contract(name)) == report


TYPES = [
    ({"seed": 5.0}, ["seed: not an integer"]),
    ({"seed": True}, ["seed: not an integer"]),
    ({"seed": 2**63}, ["seed: out of range"]),
    ({"rollout_index": 2**31}, ["rollout_index: out of range"]),
    ({"temperature": "0.5"}, ["temperature: not a number"]),
    ({"temperature": 2**53 + 1}, ["temperature: out of range"]),
    ({"environment": 7}, ["environment: not a string"]),
    ({"token_ids": "1,2"}, ["token_ids: not an array"]),
    ({"token_ids": [1, 2, 3, 4, 5.7, 6, 7, 2**31]}, ["token_ids[]: not an integer", "token_ids[]: out of range"]),
    ({"loss_mask": [0, 0, 0, 0, 1, 1, 0, 1]}, ["loss_mask[]: not a boolean"]),
    ({"logprobs": [0.0, 0.0, 0.0, 0.0, -1e39, -1.5, 0.0, -2.5]}, ["logprobs[]: out of range"]),
    ({"messages": [{"role": "user", "content": ["x"]}]}, ["messages[].content: not a string"]),
    ({"messages": [{"role": "user", "content": "x", "mood": 1}]}, ["messages[].mood: not in the contract"]),
    ({"messages": ["hi"]}, ["messages[]: not an object"]),
    ({"origin": {"format": "chat", "file": "a", "line": "1"}}, ["origin.line: not an integer"]),
    ({"seed": None}, ["seed: required"]),
    ({"seed": "x", "split": "test"}, ["seed: not an integer", "split: not allowed"]),  # types first, then what the contract says
    ({"trajectory_id": "../../x"}, ["an id is a path"]),
    ({"extra": 3}, ["extra: not a string"]),
    ({"extra": "[]"}, ["extra: not a JSON object"]),
    ({"extra": "[]", "mood": 1}, ["extra: not a JSON object"]),
]


@pytest.mark.parametrize(("fields", "reasons"), TYPES)
def test_a_record_is_never_bent_until_it_fits(fields, reasons, valid):
    records = [("a:1", valid("trajectories", **fields)), ("a:2", valid("trajectories", trajectory_id="other"))]
    report = check_records(records, load_contract("trajectories"))
    assert told(report) == {"a:1": reasons}


def test_a_field_that_is_missing_is_null(valid):
    records = [("a", {name: value for name, value in valid("samples").items() if name not in ("weight", "rewards")})]
    assert told(check_records(records, load_contract("samples"))) == {"a": ["weight: required"]}


@pytest.mark.parametrize(
    ("name", "faulty", "carried", "discarded"),
    [
        ("samples", ["mood: not in the contract"], [], {}),
        ("task_items", ["mood: not in the contract"], [], {}),
        ("scores", None, [], {"mood: not in the contract": 1}),
        ("trajectories", None, ["mood"], {}),
    ],
)
def test_unknown_fields_are_treated_by_mode(name, faulty, carried, discarded, valid):
    report = check_records([("a", valid(name, mood="good"))], load_contract(name))
    assert told(report) == ({"a": faulty} if faulty else {})
    assert (report.carried, report.discarded) == (carried, discarded)


def test_a_record_that_evolves_has_its_strangers_in_extra(valid):
    found = typed(valid("trajectories", extra='{"n": 1}', mood={"x": [1]}, gone=None), load_contract("trajectories"))
    assert json.loads(found.row["extra"]) == {"n": 1, "mood": {"x": [1]}}


def test_discarded_values_of_kept_rows_are_counted(valid):
    records = [
        ("a", valid("scores", trajectory_id="a", hints="x", demonstration=[{"role": "robot", "content": "x"}])),
        ("b", valid("scores", trajectory_id="b", hints=7, value=None)),
        ("c", valid("scores", trajectory_id="c", hints=[""])),
    ]
    report = check_records(records, load_contract("scores"))
    assert told(report) == {"b": ["value: required"]}
    assert report.discarded == {"hints: not an array": 1, "demonstration[].role: not allowed": 1, "hints[]: shorter than 1": 1}


def test_lines_without_records_count_and_places_are_in_order(valid):
    bad, good = valid("scores", value=None), valid("scores")
    records = [("1", good), ("2", "not JSON"), ("3", bad), ("4", good), ("5", "not JSON"), ("6", "blank line"), ("7", "not JSON")]
    records += [(str(number), "not JSON") for number in range(8, 12)]
    report = check_records(records, load_contract("scores"), limit=3)
    assert (report.rows, report.at_fault, report.kept) == (11, 10, 1)
    duplicate = "trajectory_id, turn, scorer: duplicate"
    assert report.reasons == {"not JSON": 7, "value: required": 1, duplicate: 2, "blank line": 1}
    assert report.first == {"not JSON": ["2", "5", "7"], "value: required": ["3"], duplicate: ["3", "4"], "blank line": ["6"]}
    assert told(report) == {"2": ["not JSON"], "3": ["value: required", duplicate], "4": [duplicate]}


def test_records_are_told_apart_over_many_files(valid, monkeypatch):
    monkeypatch.setattr("clawpipe.core.contracts.check.PART_ROWS", 3)
    records = [(str(number), valid("scores", trajectory_id=f"t{number % 9}")) for number in range(10)]
    records.insert(4, ("x", "not JSON"))
    assert list(told(check_records(records, load_contract("scores")))) == ["x", "9"]


_VALUE = st.none() | st.sampled_from([1, -1, 0.5, "x", "", True, [], {}, [1], ["x"], [""], {"role": "user"}, 2**70])


@given(fields=st.dictionaries(st.sampled_from([*schema_of("scores").names, "mood"]), _VALUE))
@settings(deadline=None, max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_record_is_kept_or_told(fields, valid):
    report = check_records([("a", valid("scores") | fields), ("b", valid("scores", trajectory_id="b"))], load_contract("scores"))
    assert report.rows == report.kept + len(report.faulty)
    assert set(told(report)) <= {"a"}


def test_a_file_is_checked_as_it_would_be_validated(store, valid, publish, tmp_path):
    rows = [valid("scores", trajectory_id=f"t{number % 5}", origin=["judge", "oracle"][number % 2]) for number in range(8)]
    ref = publish("scores", rows[:4], rows[4:])
    report, result = check_parquet(dataset_files(store, ref), load_contract("scores"), limit=99), validate(store, ref, "scores")
    assert (report.rows, report.kept) == (result.rows_in, result.rows_out)
    assert list(told(report).values()) == read_dataset(store, result.extras["quarantine"])["reasons"].to_pylist()
    assert report.first["origin: not allowed"] == [
        "part-00000.parquet row 1",
        "part-00000.parquet row 3",
        "part-00001.parquet row 1",
    ]


def test_what_is_no_file_of_the_contract_is_told(tmp_path, valid):
    (tmp_path / "a.parquet").write_bytes(b"PAR1")
    with pytest.raises(DataError, match="no Parquet file"):
        check_parquet([tmp_path / "a.parquet"], load_contract("scores"))
    write_parquet(pa.table({"x": [1]}), tmp_path / "b.parquet")
    with pytest.raises(DataError, match=r"b\.parquet: column 'trajectory_id' is missing"):
        check_parquet([tmp_path / "b.parquet"], load_contract("scores"))


@pytest.mark.parametrize("name", contract_names())
def test_a_contract_is_told_by_its_required_columns(name, valid):
    assert contract_of(valid(name)) == load_contract(name)
    assert contract_of([*valid(name), "mood"]) == load_contract(name)
    assert contract_of(["mood"]) is None
