import pytest
import yaml

import data_contracts
from clawpipe.core.contracts import contract_names, load_contract, schema_of
from clawpipe.core.contracts.odcs import contract_versions, parse_contract
from clawpipe.core.store.source import import_closure
from clawpipe.errors import DataError, NotFoundError

DATASETS = [
    "eval_results",
    "preference_pairs",
    "quarantine",
    "samples",
    "scores",
    "task_items",
    "token_scores",
    "trajectories",
]


def test_every_dataset_has_a_contract():
    assert contract_names() == DATASETS


def test_folders_of_python_beside_contracts_are_not_opened(tmp_path, monkeypatch):
    for name in ("scores", "__pycache__"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "v1.odcs.yaml").touch()
    monkeypatch.setattr("clawpipe.core.contracts.odcs.ROOT", tmp_path)
    assert contract_names() == ["scores"]


@pytest.mark.parametrize("name", DATASETS)
def test_every_released_version_is_readable(name):
    for version in contract_versions(name):
        contract = load_contract(name, version)
        assert contract.name == name
        assert contract.version.split(".")[0] == version
        assert contract.id == f"clawpipe.{name}"


@pytest.mark.parametrize("name", DATASETS)
def test_every_column_is_described(name):
    assert all(column.description.endswith(".") for column in load_contract(name).columns)


def test_the_key_is_in_the_order_of_its_positions():
    assert load_contract("scores").key == ("trajectory_id", "turn", "scorer")


def test_contracts_are_part_of_the_code_of_whoever_applies_them():
    assert data_contracts.__name__ in import_closure("clawpipe.core.contracts.validate")


def test_unknown_contracts_and_versions_name_the_known_ones():
    with pytest.raises(NotFoundError, match="known: eval_results"):
        load_contract("nobody")
    with pytest.raises(NotFoundError, match="known: 1"):
        load_contract("scores", "9")


def _document(**column):
    columns = [{"name": "a", "logicalType": "string"} | column]
    table = {
        "name": "t",
        "logicalType": "object",
        "physicalType": "table",
        "dataGranularityDescription": "x",
        "properties": columns,
    }
    head = {"apiVersion": "v3.1.0", "kind": "DataContract", "id": "t", "name": "t", "version": "1.0.0", "status": "active"}
    return head | {"description": {"purpose": "x"}, "schema": [table]}


def test_a_document_of_the_standard_is_a_contract():
    assert parse_contract(yaml.safe_dump(_document()), "t").columns[0].name == "a"


@pytest.mark.parametrize(
    "column",
    [
        {"unique": True},  # a promise that nobody checks
        {"logicalTypeOptions": {"maxLength": 3}},
        {"logicalType": "date"},
        {"logicalType": "integer"},  # of which width?
        {"logicalType": "array"},
        {"logicalType": "object"},
        {"quality": [{"metric": "nullValues", "mustBe": 0}]},
    ],
)
def test_what_would_not_be_enforced_is_refused(column):
    with pytest.raises(DataError, match=r"t\.yaml: not an enforceable contract"):
        parse_contract(yaml.safe_dump(_document(**column)), "t.yaml")


def test_a_row_rule_counts_rows_at_fault():
    document = _document()
    document["schema"][0]["quality"] = [
        {"name": "r", "type": "sql", "description": "x", "query": "select sum(a) from {object}", "mustBe": 0}
    ]
    with pytest.raises(DataError, match="must begin with"):
        parse_contract(yaml.safe_dump(document), "t.yaml")


def test_text_that_is_not_yaml_is_refused():
    with pytest.raises(DataError, match="not YAML"):
        parse_contract("a: [", "t.yaml")


def test_the_arrow_schema_has_the_widths_of_the_contract():
    types = {field.name: str(field.type) for field in schema_of("trajectories")}
    assert types["rollout_index"] == "int32"
    assert types["seed"] == "int64"
    assert types["temperature"] == "double"
    assert types["token_ids"] == "list<item: int32>"
    assert types["loss_mask"] == "list<item: bool>"
    assert types["logprobs"] == "list<item: float>"
    assert types["turns"] == "list<item: struct<start: int32, end: int32, kind: string, finish_reason: string>>"
