"""The closing table."""

from __future__ import annotations

import io
import re
from pathlib import Path

import pytest
from rich.cells import cell_len
from rich.console import Console

from clawpipe.record.nights.status import Figures, NightStatus, RegisteredModel
from clawpipe.record.reporting.summary import nights_table, plan_table, summary
from clawpipe.record.reporting.wording import duration, one_line
from tests.reporting.conftest import choice


def shown(part, width: int = 80) -> list[str]:
    console = Console(width=width, record=True, file=io.StringIO(), color_system=None)
    console.print(part, crop=False)
    return [line.rstrip() for line in console.export_text().splitlines()]


def row(lines: list[str], first: str) -> list[str]:
    [line] = [line for line in lines if line.startswith(first)]
    return re.split(r"\s{2,}", line)


def test_figures_are_those_of_the_night(night: NightStatus) -> None:
    lines = shown(summary(night))
    assert row(lines, "round-2/curate") == ["round-2/curate", "ran", "1.1 s", "256", "178", "72 zero-variance"]
    below = lines.index(next(line for line in lines if line.startswith("round-2/curate"))) + 1
    assert [line.strip() for line in lines[below : below + 2]] == ["group", "6 duplicate"]
    assert row(lines, "make_items") == ["make_items", "cached", "0.1 s", "0", "288"]
    assert row(lines, "base ") == ["base", "0.331", "[0.263, 0.407]", "n=160"]
    assert row(lines, "champion ") == ["champion", "-"]
    assert row(lines, "model ") == ["model", "clawpipe-agent version 3 (champion)"]
    assert row(lines, "total time") == ["total time", "6m 11s"]
    assert "PROMOTE" in lines
    assert row(lines, "policy version")[1] == night.policy_version


def test_steps_that_handle_no_rows_show_none(night: NightStatus) -> None:
    assert row(shown(summary(night)), "register") == ["register", "ran", "9.8 s"]


def test_one_line_says_which_round_is_the_candidate(night: NightStatus) -> None:
    assert not [line for line in shown(summary(night)) if line.startswith("candidate  ") and "round" in line]
    night.choice = choice()
    lines = [line for line in shown(summary(night)) if "round 2 of 3" in line]
    assert lines == ["candidate       round 2 of 3: round 3 lost calculator"]
    night.choice = choice().model_copy(update={"rounds": ()})
    assert "candidate       round 2 of 3: the last one, none was measured" in shown(summary(night))
    names = tuple(rate.model_copy(update={"slices": {"s" * 90: rate.slices["calculator"]}}) for rate in choice().rounds)
    night.choice = choice().model_copy(update={"rounds": names})
    [line] = [line for line in shown(summary(night)) if "round 2 of 3" in line]
    assert cell_len(line) <= 80


@pytest.fixture
def lavish(night: NightStatus) -> NightStatus:
    """A night in which every word is too long."""
    steps = [
        step.model_copy(update={"name": f"round-1/{'long' * 30}", "filtered": {"reason " + "r" * 100: 10**9}, "rows_in": 10**9})
        for step in night.steps[:3]
    ]
    return night.model_copy(
        update={
            "night": "n" * 200,
            "steps": steps,
            "reasons": ["word " * 60, "w" * 300],
            "model": RegisteredModel(name="m" * 100, version="12345", digest="d" * 64, aliases=["alias" * 20]),
            "run_dir": "/" + "deep/" * 60,
            "heldout": {"a role " * 30: Figures(success=1, low=1, high=1, n=10**6)},
            "seconds": 400000.0,
        }
    )


@pytest.mark.parametrize("width", [80, 200])
def test_no_line_exceeds_80_columns(night: NightStatus, lavish: NightStatus, width: int) -> None:
    for status in (night, lavish):
        for part in (summary(status), nights_table([status])):
            assert max(cell_len(line) for line in shown(part, width) if "/" not in line) <= 80


def test_reasons_are_wrapped_and_never_cut(lavish: NightStatus) -> None:
    assert "w" * 300 in "".join(line.strip() for line in shown(summary(lavish)))


@pytest.mark.parametrize("width", [40, 80, 200])
def test_no_path_is_broken(night: NightStatus, width: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It could not be copied by a double click."""
    monkeypatch.setenv("HOME", str(tmp_path / "elsewhere"))  # a path below it is written from there
    run_dir = tmp_path / ("deep/" * 20)
    run_dir.mkdir(parents=True)
    (run_dir / "report.html").write_text("<html>")
    file, page = "/" + "a-folder/" * 12 + "file.yaml", "https://example.test/" + "x" * 90
    changes = {"run_dir": str(run_dir), "warnings": [f"see {page} about {file}"], "reasons": [f"Lost: {file}."]}
    lines = shown(summary(night.model_copy(update=changes)), width)
    for path in (str(run_dir / "report.html"), page, file, f"{file}."):
        assert any(path in line for line in lines), path
    failed = night.model_copy(update={"verdict": None, "error": f"{file}: it is damaged\n  -> delete {file}"})
    assert sum(file in line for line in shown(summary(failed), width)) == 2


def test_a_report_that_is_not_there_is_not_named(night: NightStatus, tmp_path: Path) -> None:
    lines = shown(summary(night.model_copy(update={"run_dir": str(tmp_path)})))
    assert [line.split() for line in lines if "report" in line] == [["report", "none"]]


def test_a_night_under_way_has_no_verdict(night: NightStatus) -> None:
    status = NightStatus(night="n", steps=night.steps[:4], run_dir=night.run_dir)
    lines = shown(summary(status))
    assert "No verdict: the night has not come to its end." in lines
    assert row(lines, "model ") == ["model", "none registered"]


def test_a_night_that_an_error_ended_says_which_and_what_helps(night: NightStatus) -> None:
    lines = shown(summary(night.model_copy(update={"verdict": None, "error": "curation: nothing to learn\n  -> set imitate"})))
    assert lines[lines.index("No verdict: the night ended in an error.") + 1 :][:2] == [
        "  curation: nothing to learn",
        "  -> set imitate",
    ]


def test_a_rerun_is_told_apart_from_the_work(night: NightStatus) -> None:
    lines = shown(summary(night.model_copy(update={"rerun_seconds": 18.8})))
    assert row(lines, "total time") == ["total time", "6m 11s"]
    assert row(lines, "last run")[1].startswith("18.8 s, a rerun")
    assert not [line for line in shown(summary(night)) if line.startswith("last run")]


def test_the_first_line_says_what_was_compared(night: NightStatus) -> None:
    lines = shown(summary(night.model_copy(update={"compared": "sft from tiny on 200 stored trajectories"})))
    assert lines[1] == "sft from tiny on 200 stored trajectories"


def test_data_are_not_markup(night: NightStatus) -> None:
    lines = shown(summary(night.model_copy(update={"reasons": ["[bold]x[/bold]\x1b[31m :smile:"]})))
    assert "  [bold]x[/bold] [31m :smile:" in lines


def test_nights_are_listed_one_a_line(night: NightStatus) -> None:
    other = NightStatus(night="unfinished")
    trend = night.model_copy(update={"benchmark": {"candidate": Figures(success=0.625, low=0.5, high=0.73, n=64)}})
    lines = shown(nights_table([trend, other]))
    assert row(lines, night.night) == [night.night, "PROMOTE", "0.700", "0.625", "3", "6m 11s"]
    assert row(lines, "unfinished") == ["unfinished", "-", "-", "-", "-", "0.0 s"]
    assert row(shown(summary(trend)), "benchmark/candidate") == ["benchmark/candidate", "0.625", "[0.500, 0.730]", "n=64"]


@pytest.mark.parametrize(
    ("seconds", "told"),
    [
        (0, "0.0 s"),
        (99.94, "99.9 s"),
        (99.96, "1m 40s"),
        (3599.4, "59m 59s"),
        (3599.6, "1h 00m"),
        (3720, "1h 02m"),
        (86400, "24h 00m"),
    ],
)
def test_durations(seconds: float, told: str) -> None:
    assert duration(seconds) == told


def test_one_line_drops_what_would_steer_a_terminal() -> None:
    assert one_line(" a\r\nb\x1b]0;title\x07c\u202egnp\u2028d ") == "a b ]0;title c gnp d"


def test_a_plan_shows_settings_as_overrides_and_what_would_run() -> None:
    settings = {"seed": 0, "train": {"lora": {"rank": 16}, "method": "grpo"}, "trajectories": [], "options": {}}
    steps = [{"name": "make_items", "key": "make_items-" + "a" * 40, "would": "cached"}]
    steps.append({"name": "round-10/" + "x" * 40, "key": None, "would": "run"})
    plan = {"night": "n" * 100, "config": settings | {"long" * 20: "v" * 200}, "steps": steps}
    lines = shown(plan_table(plan), 120)
    assert max(map(cell_len, lines)) <= 80
    assert row(lines, "train.lora.rank") == ["train.lora.rank", "16"]
    assert row(lines, "train.method") == ["train.method", '"grpo"']
    assert row(lines, "options") == ["options", "{}"]
    assert row(lines, "make_items")[:2] == ["make_items", "cached"]
    assert row(lines, "make_items")[2].startswith("make_items-aaaa")
    assert row(lines, "round-10/xxx")[1:] == ["run", "-"]
    assert "v" * 200 in "".join(line.strip() for line in lines)
