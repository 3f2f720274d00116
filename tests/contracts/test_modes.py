"""What becomes of columns that nobody knows, of columns that are missing, and of values that cannot be used."""

import datetime
import json

import pyarrow as pa
import pytest
import yaml

from clawpipe.core.contracts import load_contract, schema_of
from clawpipe.core.contracts.odcs import contract_names, parse_contract
from clawpipe.core.contracts.validate import validate
from clawpipe.core.store.datasets import publish_dataset, read_dataset
from clawpipe.errors import DataError

MODES = {
    "task_items": "discard_row",
    "trajectories": "evolve",
    "scores": "discard_value",
    "samples": "discard_row",
    "preference_pairs": "discard_row",
    "token_scores": "discard_row",
    "eval_results": "freeze",
    "quarantine": "freeze",
}


def frozen():
    return [name for name in contract_names() if MODES[name] == "freeze"]


def with_columns(contract, rows, **columns):
    table = pa.Table.from_pylist(rows, schema=schema_of(contract))
    for name, values in columns.items():
        table = table.append_column(name, values if isinstance(values, pa.Array) else pa.array(values))
    return table


def test_every_contract_says_its_mode():
    assert {name: load_contract(name).mode for name in contract_names()} == MODES
    assert all(len(load_contract(name).custom_properties) == 1 for name in contract_names())


def _contract(mode, columns=("a",)):
    properties = [{"name": name, "logicalType": "string"} for name in columns]
    table = {"name": "t", "logicalType": "object", "physicalType": "table", "dataGranularityDescription": "x"}
    head = {"apiVersion": "v3.1.0", "kind": "DataContract", "id": "t", "name": "t", "version": "1.0.0", "status": "active"}
    head |= {"customProperties": [{"property": "mode", "value": mode}]} if mode else {}
    return yaml.safe_dump(head | {"description": {"purpose": "x"}, "schema": [table | {"properties": properties}]})


def test_a_contract_that_says_nothing_discards_rows():
    assert parse_contract(_contract(None), "t").mode == "discard_row"


@pytest.mark.parametrize(("mode", "told"), [("magic", "Input should be"), ("evolve", "needs a column 'extra'")])
def test_a_mode_that_nobody_could_keep_is_refused(mode, told):
    with pytest.raises(DataError, match=told):
        parse_contract(_contract(mode), "t")


@pytest.mark.parametrize("contract", frozen())
def test_a_frozen_dataset_has_all_columns_and_no_others(contract, store, valid):
    whole = with_columns(contract, [valid(contract)])
    with pytest.raises(DataError, match="column 'mood' is not in the contract"):
        validate(store, publish_dataset(store, contract, [with_columns(contract, [valid(contract)], mood=["good"])]), contract)
    for column in whole.column_names:
        with pytest.raises(DataError, match=f"column '{column}' is missing"):
            validate(store, publish_dataset(store, contract, [whole.drop_columns([column])]), contract)


def test_unknown_columns_of_trajectories_are_kept_in_extra(store, valid):
    rows = [valid("trajectories", trajectory_id="a"), valid("trajectories", trajectory_id="b", extra='{"mood": "bad", "n": 1.5}')]
    unknown = {"mood": ["good", "worse"], "votes": pa.array([[1, None], None]), "at": pa.array([{"x": float("nan")}, None])}
    ref = publish_dataset(store, "trajectories", [with_columns("trajectories", rows, **unknown)])
    result = validate(store, ref, "trajectories")
    assert (result.rows_out, result.filtered, result.details) == (2, {}, {"carried": ["at", "mood", "votes"]})
    table = read_dataset(store, result.output)
    assert table.schema.equals(schema_of("trajectories"))
    first, second = (json.loads(text) for text in table["extra"].to_pylist())
    assert first == {"at": {"x": "NaN"}, "mood": "good", "votes": [1, None]}
    assert second == {"mood": "bad", "n": 1.5, "column.mood": "worse"}  # nothing that was there is overwritten
    assert [row | {"extra": None} for row in table.to_pylist()] == [row | {"extra": None} for row in rows]
    assert validate(store, result.output, "trajectories").output == result.output


def test_a_file_that_lacks_extra_evolves_as_well(store, valid):
    plain = with_columns("trajectories", [valid("trajectories", trajectory_id="a")])
    older = plain.drop_columns(["extra", "session_id"]).append_column("day", pa.array([datetime.date(2026, 1, 2)]))
    ref = publish_dataset(store, "trajectories", [older, with_columns("trajectories", [valid("trajectories")])])
    table = read_dataset(store, validate(store, ref, "trajectories").output)
    assert table["extra"].to_pylist() == ['{"day": "2026-01-02"}', None]


def test_a_faulty_row_is_quarantined_with_unknown_columns(store, valid):
    rows = [valid("trajectories", trajectory_id="a"), valid("trajectories", trajectory_id="b", seed=None)]
    table = with_columns("trajectories", rows, mood=["good", "bad"])
    result = validate(store, publish_dataset(store, "trajectories", [table]), "trajectories")
    assert (result.rows_in, result.rows_out, result.filtered) == (2, 1, {"seed: required": 1})
    [told] = read_dataset(store, result.extras["quarantine"]).to_pylist()
    assert json.loads(told["row"])["mood"] == "bad"
    assert read_dataset(store, result.output)["extra"].to_pylist() == ['{"mood": "good"}']


def test_an_unknown_column_of_two_types_is_named(store, valid):
    parts = [with_columns("trajectories", [valid("trajectories")], mood=values) for values in (["good"], [1])]
    with pytest.raises(DataError, match="column 'mood' is int64, and string in another file"):
        validate(store, publish_dataset(store, "trajectories", parts), "trajectories")


def robot():
    return {"role": "robot", "content": "x", "tool_calls": [], "tool_call_id": None, "name": None}


def test_values_at_fault_of_scores_become_null_and_are_counted(store, valid):
    both = {"hints": [""], "demonstration": [robot()]}
    faults = [{"hints": ["x", ""]}, {"hints": [None]}, {"demonstration": [robot()]}, both, {}]
    rows = [valid("scores", trajectory_id=f"t{number}") | fault for number, fault in enumerate(faults)]
    result = validate(store, publish_dataset(store, "scores", [with_columns("scores", rows)]), "scores")
    assert (result.rows_out, result.filtered, result.extras) == (5, {}, {})
    assert result.details == {
        "discarded": {"demonstration[].role: not allowed": 2, "hints[]: required": 1, "hints[]: shorter than 1": 2}
    }
    cleared = [row | dict.fromkeys(fault) for row, fault in zip(rows, faults, strict=True)]
    assert read_dataset(store, result.output).to_pylist() == cleared
    assert validate(store, result.output, "scores").output == result.output


def test_a_row_of_scores_at_fault_is_rejected_as_it_came(store, valid):
    rows = [valid("scores", trajectory_id="a", hints=[""], value=None), valid("scores", trajectory_id="b", turn=-1)]
    result = validate(store, publish_dataset(store, "scores", [with_columns("scores", rows)]), "scores")
    assert result.filtered == {"value: required": 1, "turn: below 0": 1}  # a part of the key is never discarded
    assert result.details == {}  # the value went with its row
    told = read_dataset(store, result.extras["quarantine"]).to_pylist()
    assert json.loads(told[0]["row"]) == rows[0]


def test_unknown_columns_of_scores_are_dropped_and_counted(store, valid):
    parts = [
        with_columns("scores", [valid("scores", trajectory_id="a"), valid("scores", trajectory_id="b")], mood=["good", None]),
        with_columns("scores", [valid("scores", trajectory_id="c", hints=[""])]),
    ]
    result = validate(store, publish_dataset(store, "scores", parts), "scores")
    assert result.details == {"discarded": {"mood: not in the contract": 1, "hints[]: shorter than 1": 1}}
    table = read_dataset(store, result.output)
    assert table.schema.equals(schema_of("scores"))
    assert table["hints"].to_pylist() == [["Call stock."], ["Call stock."], None]
