"""Which step of the version number a change takes."""

from typing import Any

import pytest
import yaml

from clawpipe.core.contracts.diff import allows, changes, impact_of, permitted
from clawpipe.core.contracts.odcs import parse_contract

COLUMNS: list[dict[str, Any]] = [
    {"name": "id", "logicalType": "string", "required": True, "primaryKey": True, "primaryKeyPosition": 1},
    {"name": "value", "logicalType": "number", "logicalTypeOptions": {"format": "f32"}},
    {"name": "at", "logicalType": "object", "properties": [{"name": "file", "logicalType": "string"}]},
]


def rule(name, condition):
    query = f"select count(*) from {{object}} where {condition}"
    return {"name": name, "type": "sql", "description": "x", "query": query, "mustBe": 0}


RULES = [rule("low", "value < 0")]
NOTE = {"name": "note", "logicalType": "string"}


def contract(columns=COLUMNS, rules=RULES, version="1.0.0", mode=None, purpose="x"):
    table = {"name": "t", "logicalType": "object", "physicalType": "table", "dataGranularityDescription": "x"}
    head = {"apiVersion": "v3.1.0", "kind": "DataContract", "id": "t", "name": "t", "version": version, "status": "active"}
    head |= {"customProperties": [{"property": "mode", "value": mode}]} if mode else {}
    table |= {"properties": list(columns), "quality": list(rules)}
    return parse_contract(yaml.safe_dump(head | {"description": {"purpose": purpose}, "schema": [table]}), "t")


def column(index, **fields):
    return [old | fields if position == index else old for position, old in enumerate(COLUMNS)]


MINOR = {
    "a column": {"columns": [*COLUMNS, NOTE]},
    "a column first": {"columns": [NOTE, *COLUMNS]},
    "a column and a rule about it": {"columns": [*COLUMNS, NOTE], "rules": [*RULES, rule("told", "note = '' and value > 1")]},
    "a rule that now is about a new column too": {
        "columns": [*COLUMNS, NOTE],
        "rules": [rule("low", "value < 0 or note[1] = 'x'")],
    },
}
MAJOR = {
    "a required column": {"columns": [*COLUMNS, NOTE | {"required": True}]},
    "a column of the key": {"columns": [*COLUMNS, NOTE | {"primaryKey": True, "primaryKeyPosition": 2}]},
    "a column of a frozen contract": {"columns": [*COLUMNS, NOTE], "mode": "freeze"},
    "a column that is gone": {"columns": COLUMNS[:2]},
    "a column by another name": {"columns": column(2, name="place")},
    "another type": {"columns": column(1, logicalType="string", logicalTypeOptions={})},
    "another width": {"columns": column(1, logicalTypeOptions={"format": "f64"})},
    "a bound": {"columns": column(1, logicalTypeOptions={"format": "f32", "minimum": 0})},
    "required": {"columns": column(1, required=True)},
    "no longer required": {"columns": column(0, required=False)},
    "no longer a key": {"columns": column(0, primaryKey=False)},
    "values": {"columns": column(0, quality=[{"metric": "invalidValues", "arguments": {"validValues": ["a"]}, "mustBe": 0}])},
    "a field of a struct": {"columns": column(2, properties=[{"name": "file", "logicalType": "string"}, NOTE])},
    "a field that is gone": {"columns": column(2, properties=[NOTE])},
    "a rule": {"rules": [*RULES, rule("high", "value > 9")]},
    "a rule beside a column": {"columns": [*COLUMNS, NOTE], "rules": [*RULES, rule("high", "value > 9 and id = 'notes'")]},
    "a rule that changed": {"rules": [rule("low", "value < 1")]},
    "a rule that is gone": {"rules": []},
}
NONE = {
    "words": {"purpose": "y", "columns": column(0, description="The id.")},
    "the order of columns": {"columns": COLUMNS[::-1]},
    "the mode": {"mode": "discard_value"},
}


IMPACTS = {"none": NONE, "minor": MINOR, "major": MAJOR}


@pytest.mark.parametrize(("what", "impact"), [(what, impact) for impact, told in IMPACTS.items() for what in told])
def test_the_impact_of_a_change(what, impact):
    new = IMPACTS[impact][what]
    assert impact_of(changes(contract(), contract(**new))) == impact
    steps = {"none": {"1.0.0", "1.0.1", "1.1.0", "2.0.0"}, "minor": {"1.1.0", "2.0.0"}, "major": {"2.0.0"}}
    for version in ("1.0.0", "1.0.1", "1.1.0", "2.0.0"):
        assert allows(contract(), contract(**new | {"version": version})) == (version in steps[impact])


def test_changes_say_where_and_what():
    new = contract(columns=[*column(1, required=True), NOTE], rules=[rule("low", "value < 1")], mode="discard_value")
    assert [tuple(change) for change in changes(contract(), new)] == [
        ("value", "required: False is True now", "major"),
        ("note", "added", "minor"),
        ("low", "rule changed", "major"),
        ("mode", "discard_row is discard_value now", "none"),
    ]


@pytest.mark.parametrize(
    ("old", "new", "most"), [("1.9.0", "2.0.0", "major"), ("1.1.0", "1.2.0", "minor"), ("1.1.0", "1.1.4", "none")]
)
def test_what_a_version_number_allows(old, new, most):
    assert permitted(old, new) == most
