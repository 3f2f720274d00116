"""The progress of a night on a terminal."""

from __future__ import annotations

import contextlib
import io
import re

import pytest
from rich.cells import cell_len
from rich.console import Console

from clawpipe.record.nights.status import NightStatus, StepEntry
from clawpipe.record.reporting.terminal import Progress, waiting

ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def piped(width: int = 80) -> tuple[Console, io.StringIO]:
    file = io.StringIO()
    return Console(file=file, width=width), file


def step(name: str, **fields) -> StepEntry:
    defaults = {"state": "ran", "seconds": 41.2, "rows_in": 256, "rows_out": 241, "filtered": {}, "key": "k", "digest": None}
    return StepEntry(**{"name": name} | defaults | fields)


def told(entry: StepEntry) -> str:
    console, file = piped()
    with Progress(console) as progress:
        progress.started(entry.name)
        progress.finished(entry)
    return file.getvalue()


def test_a_finished_step_leaves_one_plain_line() -> None:
    assert told(step("round-1/train", filtered={"too long": 15})) == (
        "  round-1/train              ran      41.2 s  256 -> 241 rows, 15 too long\n"
    )


def test_a_cached_step_says_so() -> None:
    words = told(step("make_items", state="cached", seconds=0.1, rows_in=0, rows_out=288)).split()
    assert words == ["make_items", "cached", "0.1", "s", "288", "rows"]


def test_a_step_without_rows_tells_none() -> None:
    assert told(step("promote", rows_in=0, rows_out=0)).split() == ["promote", "ran", "41.2", "s"]


def test_reasons_that_do_not_fit_are_summed_up() -> None:
    line = told(step("round-1/curate", filtered={"group of one or constant": 12, "log-prob not finite": 3}))
    assert line.endswith("256 -> 241 rows, 15 filtered\n")


def test_without_a_terminal_only_finished_steps_are_written() -> None:
    console, file = piped()
    with Progress(console) as progress:
        progress.started("gate")
        progress.progress("gate", 1, 2, "half")
        assert file.getvalue() == ""
        progress.finished(step("gate"))
    assert "\x1b" not in file.getvalue()
    assert file.getvalue().count("\n") == 1


@pytest.mark.parametrize("width", [40, 80, 200])
def test_no_line_is_wider_than_the_terminal_or_80_columns(night: NightStatus, width: int) -> None:
    console, file = piped(width)
    with Progress(console) as progress:
        for entry in [*night.steps, step("round-10/" + "表" * 60, rows_in=10**12, filtered={"x" * 200: 7})]:
            progress.finished(entry)
    lines = file.getvalue().splitlines()
    assert len(lines) == len(night.steps) + 1
    assert max(map(cell_len, lines)) <= min(width, 80)


def test_live_lines_on_a_terminal_keep_to_its_width() -> None:
    file = Terminal()
    console = Console(file=file, force_terminal=True, width=60, legacy_windows=False, _environ={"TERM": "xterm"})
    with Progress(console) as progress:
        progress.started("round-1/generate_rollouts")
        progress.progress("round-1/generate_rollouts", 3, 16, "chunks " * 20)
        progress._lines.refresh()
        progress.finished(step("round-1/generate_rollouts"))
    lines = re.split(r"[\r\n]+", ANSI.sub("", file.getvalue()))
    assert any("3/16 chunks" in line for line in lines)
    assert max(map(cell_len, lines)) <= 60
    assert "  round-1/generate_rollouts" in file.getvalue()


def test_a_step_that_a_failure_cut_short_is_told() -> None:
    console, file = piped()
    with contextlib.suppress(RuntimeError), Progress(console) as progress:
        progress.started("round-1/train")
        raise RuntimeError
    assert file.getvalue().split()[:2] == ["round-1/train", "stopped"]


def test_data_are_neither_markup_nor_control_codes() -> None:
    line = told(step("[red]x\x1b[2J", filtered={"a\nb": 1}))
    assert "[red]x [2J" in line
    assert "1 a b" in line
    assert line.count("\n") == 1


def test_standard_output_stays_free(capsys: pytest.CaptureFixture[str]) -> None:
    with Progress() as progress:
        print('{"json": true}')
        progress.finished(step("gate"))
    out, err = capsys.readouterr()
    assert out == '{"json": true}\n'
    assert "gate" in err


def test_a_wait_is_one_line_where_nobody_watches(capsys: pytest.CaptureFixture[str]):
    with waiting("loading [a] model"):
        said = capsys.readouterr()
    assert (said.out, said.err) == ("", "loading [a] model\n")
    with waiting("loading", quiet=True):
        pass
    assert capsys.readouterr() == ("", "")
