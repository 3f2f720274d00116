"""`clawpipe contract`: what it prints, and its exit codes."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from clawpipe.cli import main
from clawpipe.core.contracts import contract_names, schema_of
from clawpipe.core.store.artifacts import Store
from clawpipe.core.store.datasets import publish_dataset, write_parquet
from clawpipe.core.store.home import Home


def outcome(*words: str) -> int:
    with pytest.raises(SystemExit) as end:
        main.run(("contract", *words))
    assert isinstance(end.value.code, int)
    return end.value.code


def score(trajectory: str, **fields: Any) -> dict[str, Any]:
    row = {"trajectory_id": trajectory, "turn": None, "scorer": "shop", "origin": "verifier", "value": 1.0, "success": True}
    return row | {"reason": "right", "evidence": "{}"} | fields


def table(*rows: dict[str, Any]) -> pa.Table:
    return pa.Table.from_pylist(list(rows), schema=schema_of("scores"))


def test_list_names_every_contract(capsys: pytest.CaptureFixture[str]):
    assert outcome("list", "--json") == 0
    found = {facts["name"]: facts for facts in json.loads(capsys.readouterr().out)["contracts"]}
    assert list(found) == contract_names()
    assert (found["scores"]["version"], found["scores"]["mode"]) == ("1.1.0", "discard_value")
    assert found["scores"]["released"] == ["1.0.0", "1.1.0"]
    assert outcome("list") == 0
    assert "task_items         1.2.0   discard_row" in capsys.readouterr().out


def test_check_tells_every_line_of_a_file_at_fault(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    good = json.dumps(score("a")).encode()
    bad = [b'{"cut', b"", json.dumps(score("b", origin="oracle", value="1")).encode()]
    file = tmp_path / "scores.jsonl"
    file.write_bytes(b"\n".join([good, *bad]) + b"\n")
    assert outcome("check", str(file), "--json") == 65
    report = json.loads(capsys.readouterr().out)
    assert (report["contract"], report["rows"], report["kept"], report["at_fault"]) == ("scores", 4, 1, 3)
    at = len(good) + 1
    assert report["faulty"] == [
        {"place": f"{file}:2@{at}", "reasons": ["not JSON"]},
        {"place": f"{file}:3@{at + 6}", "reasons": ["blank line"]},
        {"place": f"{file}:4@{at + 7}", "reasons": ["value: not a number", "origin: not allowed"]},
    ]
    assert report["reasons"] == {"not JSON": 1, "blank line": 1, "value: not a number": 1, "origin: not allowed": 1}
    assert outcome("check", str(file), "--limit", "0") == 65
    shown = capsys.readouterr().out
    assert shown.splitlines()[0] == "scores 1.1.0 (discard_value): 1 of 4 rows keep it"
    assert f"1 x not JSON, first at {file}:2@{at}" in shown


def test_check_reads_compressed_lines_to_where_they_break_off(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    lines = b"".join(json.dumps(score(f"t{number}")).encode() + b"\n" for number in range(3))
    file = tmp_path / "scores.jsonl.gz"
    file.write_bytes(gzip.compress(lines))
    assert outcome("check", str(file)) == 0
    file.write_bytes(gzip.compress(lines)[:-4])
    assert outcome("check", str(file), "--json") == 65
    report = json.loads(capsys.readouterr().out.split("\n", 1)[1])
    assert report["first"]["file cannot be read on: EOFError"] == [f"{file}:4@{len(lines)}"]


def test_check_looks_at_parquet_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    file = tmp_path / "scores.parquet"
    write_parquet(table(score("a"), score("b")), file)
    assert outcome("check", str(file)) == 0
    write_parquet(table(score("a"), score("a", hints=[""])), file)
    assert outcome("check", str(file), "--json") == 65
    report = json.loads(capsys.readouterr().out.split("\n", 1)[1])
    assert report["first"] == {"trajectory_id, turn, scorer: duplicate": ["scores.parquet row 1"]}
    assert outcome("check", str(file), "--contract", "samples") == 65  # columns of another contract
    file.write_bytes(b"")
    assert outcome("check", str(file)) == 65


def test_check_finds_stored_datasets(home: Home, capsys: pytest.CaptureFixture[str]):
    store = Store(home.store)
    good, bad = (publish_dataset(store, "scores", [table(score("a", value=value))]) for value in (1.0, float("nan")))
    assert outcome("check", good.digest) == 0
    assert outcome("check", bad.digest[:12]) == 65
    assert "1 x value: not finite, first at part-00000.parquet row 0" in capsys.readouterr().out
    assert outcome("check", "0123") == 2
    assert "no file and no stored dataset" in capsys.readouterr().err


def test_check_asks_for_the_contract_that_it_cannot_tell(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    file = tmp_path / "a.jsonl"
    file.write_text('{"mood": "good"}\n')
    assert outcome("check", str(file)) == 2
    assert "--contract eval_results|" in capsys.readouterr().err
    assert outcome("check", str(file), "--contract", "nobody") == 2
    assert outcome("check", str(file), "--contract", "scores") == 65


def test_diff_lists_changes_and_whether_the_version_allows_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert outcome("diff", "samples@1.0.0", "--json") == 0
    facts = json.loads(capsys.readouterr().out)
    assert (facts["old"], facts["new"]) == ("samples@1.0.0", "samples@1.2.0")
    assert (facts["impact"], facts["version_allows"], facts["allowed"]) == ("minor", "minor", True)
    assert {"place": "rewards", "what": "added", "impact": "minor"} in facts["changes"]
    mine = tmp_path / "mine.yaml"
    mine.write_text(Path("data_contracts/samples/released/1.0.0.odcs.yaml").read_text().replace("minimum: 0}", "minimum: 1}"))
    assert outcome("diff", "samples@1.0.0", str(mine)) == 65
    shown = capsys.readouterr().out
    assert shown.startswith("samples@1.0.0 -> samples@1.0.0: major, its number allows none\n")
    assert "major  rollout_index: minimum: 0 is 1 now" in shown
    assert outcome("diff", "samples@7.0.0") == 2
