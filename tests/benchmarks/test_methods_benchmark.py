"""The runner of nights: one line a night, and on again after a kill."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))


@pytest.fixture
def runner(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    import methods  # pyright: ignore[reportMissingImports]

    monkeypatch.setattr(methods, "conditions", dict)
    return methods


def status_of(night: Any, verdict: str = "PROMOTE") -> dict[str, Any]:
    success = {"success": 0.25, "low": 0.2, "high": 0.3}
    updates = [{"trained_tokens": 10.0}, {"trained_tokens": 5.0}]
    slices = [{"slice": "calc", "effect": -0.4, "p_regression": 0.02}, {"slice": "price", "effect": 0.5, "p_regression": 1.0}]
    steps = [
        {"name": "round-1/train", "key": "t", "seconds": 60.0, "state": "ran", "details": {"updates": updates}},
        {"name": "gate", "key": None, "seconds": 6.0, "state": "ran", "details": {"slices": slices}},
    ]
    return {"heldout": {"base": success, "candidate": success | {"success": 0.75}}, "verdict": verdict, "steps": steps}


@pytest.fixture
def ask(runner: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """ask(*words, run=...): run the command with a night of one's own; exit code, stdout as JSON, and the nights that ran."""

    def asked(*words: str, run: Callable[[Any], dict[str, Any]] = status_of) -> tuple[int, Any, list[str]]:
        ran: list[str] = []

        def one(night: Any, home: Path, options: list[str]) -> dict[str, Any]:
            ran.append(f"{night.method}/{night.seed}/{night.demonstrations}")
            return run(night)

        monkeypatch.setattr(runner, "run", one)
        monkeypatch.setattr(sys, "argv", ["methods.py", "--nights", str(tmp_path / "nights.jsonl"), "--json", *words])
        try:
            code = runner.main()
        finally:
            out = capsys.readouterr().out
        return code, json.loads(out), ran

    return asked


def test_each_night_is_a_line_and_is_made_once(ask: Any, tmp_path: Path):
    code, found, ran = ask("sft", "dpo", "--seeds", "0", "1")
    assert sorted(ran) == sorted(f"{name}/{seed}/{arm}" for name in ("sft", "dpo") for seed in (0, 1) for arm in ("off", "on"))
    lines = [json.loads(line) for line in (tmp_path / "nights.jsonl").read_text().splitlines()]
    assert len({line["source"] for line in lines}) == len(lines) == 8
    first = found["nights"][0]
    assert (first["method"], first["demonstrations"], first["seed"], first["gain"]) == ("sft", "off", 0, 0.5)
    assert (first["updates"], first["trained_tokens"], first["minutes"]) == (2, 15, 1.1)
    assert (first["slices"], first["lost"], code) == ({"calc": -0.4, "price": 0.5}, ["calc"], 1)  # 0.02 is below 0.05 / 2
    assert ask("sft", "dpo", "--seeds", "0", "1")[2] == []
    assert ask("sft", "--seeds", "2", "--demonstrations", "off")[2] == ["sft/2/off"]


def test_a_runner_that_was_cut_goes_on_where_it_was(ask: Any, tmp_path: Path):
    def cut(night: Any) -> dict[str, Any]:
        if night.method == "grpo":
            raise SystemExit("power")
        return status_of(night)

    with pytest.raises(SystemExit, match="power"):
        ask("sft", "grpo", "--seeds", "0", "--demonstrations", "off", run=cut)
    with (tmp_path / "nights.jsonl").open("a") as file:
        file.write('{"method": "grp')  # of a line that was being written
    _, found, ran = ask("sft", "grpo", "--seeds", "0", "--demonstrations", "off")
    assert ran == ["grpo/0/off"]
    assert [row["method"] for row in found["nights"]] == ["sft", "grpo"]
    assert [(part["nights"], part["promoted"], part["lost_a_slice"]) for part in found["summary"]] == [(1, 1, 1)] * 2


def test_another_setting_or_another_source_is_another_night(ask: Any, runner: ModuleType, monkeypatch: pytest.MonkeyPatch):
    words = ("sft", "--seeds", "0", "--demonstrations", "off")
    ask(*words)
    assert ask(*words, "-o", "rounds=2")[2] == ["sft/0/off"]
    monkeypatch.setattr(runner, "code_digest", lambda module: "edited")
    assert ask(*words)[2] == ["sft/0/off"]
    assert len(ask(*words, "--table")[1]["nights"]) == 1  # the last one


def test_the_table_runs_nothing(ask: Any):
    code, found, ran = ask("--table")
    assert (code, found, ran) == (1, {"nights": [], "summary": []}, [])
