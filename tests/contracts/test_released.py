"""Every released version of a contract stays readable: its text, and rows that were written under it.

`released/<name>-<version>.jsonl` holds such rows. A new release adds a file there and one in `data_contracts/<name>/released`;
neither is ever edited.
"""

import json
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pytest

from clawpipe.core.contracts.diff import (
    allows,
    changes,
    find_contract,
    impact_of,
    load_released,
    permitted,
    released_versions,
    version_number,
)
from clawpipe.core.contracts.odcs import contract_names, load_contract
from clawpipe.core.contracts.schema import arrow_schema, schema_of
from clawpipe.core.contracts.validate import validate
from clawpipe.core.store.datasets import publish_dataset, read_dataset
from clawpipe.errors import DataError, NotFoundError

ROWS = Path(__file__).with_name("released")
RELEASED = [(name, version) for name in contract_names() for version in released_versions(name)]


def rows_of(name, version):
    return [json.loads(line) for line in (ROWS / f"{name}-{version}.jsonl").read_text().splitlines()]


def test_every_release_has_rows_and_every_contract_a_release():
    assert sorted(file.stem for file in ROWS.iterdir()) == sorted(f"{name}-{version}" for name, version in RELEASED)
    assert {name for name, _ in RELEASED} == set(contract_names())
    assert ("trajectories", "1.0.0") in RELEASED


@pytest.mark.parametrize(("name", "version"), RELEASED)
def test_rows_of_every_release_are_accepted(name, version, store):
    """Under the contract in force, after a migration where one is due."""
    released, rows = load_released(name, version), rows_of(name, version)
    table = pa.Table.from_pylist(rows, schema=arrow_schema(released))
    ref = publish_dataset(store, name, [table], schema_version=version.split(".")[0])
    result = validate(store, ref, name)
    assert (result.rows_out, result.filtered, result.details) == (len(rows), {}, {})
    accepted = read_dataset(store, result.output)
    assert accepted.schema.equals(schema_of(name))
    if version.split(".")[0] == load_contract(name).version.split(".")[0]:
        assert accepted.select(table.column_names).to_pylist() == table.to_pylist()
        assert all(accepted[column].null_count == len(rows) for column in set(accepted.column_names) - set(table.column_names))


@pytest.mark.parametrize("name", contract_names())
def test_the_version_number_matches_changes_since_the_release(name):
    versions = [load_released(name, version) for version in released_versions(name)] + [load_contract(name)]
    for before, now in pairwise(versions):
        assert version_number(before.version) <= version_number(now.version)
        assert allows(before, now), changes(before, now)


@pytest.mark.parametrize(("name", "version"), RELEASED)
def test_a_release_is_called_what_it_is(name, version):
    contract = load_released(name, version)
    evolves = name == "trajectories" and version != "1.0.0"
    assert (contract.name, contract.version, contract.mode) == (name, version, "evolve" if evolves else "discard_row")


def test_steps_that_were_taken():
    steps = {name: load_released(name, "1.0.0") for name in ("trajectories", "scores", "samples")}
    steps |= {"preference_pairs": load_released("preference_pairs", "2.0.0")}
    found = {name: changes(old, load_contract(name)) for name, old in steps.items()}
    added = {name: [change.place for change in told if change.what == "added"] for name, told in found.items()}
    assert added["scores"] == ["hints", "demonstration"]
    assert added["preference_pairs"] == ["tools", "origin", "extra"]
    assert added["samples"] == ["rewards", "turns"]
    assert set(added["trajectories"]) > {"session_id", "user_id", "origin", "extra", "logprobs_kind"}
    assert {impact_of(told) for told in found.values()} == {"minor"}
    assert permitted("1.0.0", "1.1.0") == "minor"


def test_contracts_are_found_by_name_version_and_file(tmp_path):
    assert find_contract("scores") == find_contract("scores@1") == load_contract("scores")
    assert find_contract("scores@1.0.0").version == "1.0.0"
    file = tmp_path / "mine.yaml"
    file.write_text(Path("data_contracts/scores/released/1.0.0.odcs.yaml").read_text())
    assert find_contract(str(file)) == find_contract("scores@1.0.0")
    with pytest.raises(NotFoundError, match=r"not released as '1\.7\.0'\n  -> released: 1\.0\.0, 1\.1\.0"):
        find_contract("scores@1.7.0")
    with pytest.raises(NotFoundError, match="no contract is called 'nobody'"):
        find_contract("nobody@1.0.0")
    with pytest.raises(NotFoundError, match="no such file"):
        find_contract(str(tmp_path / "other.yaml"))
    file.write_text("a: [")
    with pytest.raises(DataError, match="not YAML"):
        find_contract(str(file))
