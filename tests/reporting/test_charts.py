"""Positions in the charts, compared with positions computed by hand."""

from __future__ import annotations

import math

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from clawpipe.record.nights.status import Figures
from clawpipe.record.reporting.html import Axis, curve, interval_chart, nice_ticks, tick_labels


def test_an_axis_is_linear() -> None:
    assert [Axis(0, 1, 90, 440).at(value) for value in (0, 0.5, 1)] == [90, 265, 440]
    assert Axis(10, 20, 112, 26).at(12.5) == 112 - 86 / 4


def test_intervals_lie_on_a_scale_from_0_to_1() -> None:
    chart = interval_chart({"base": Figures(success=0.4, low=0.2, high=0.6, n=10), "champion": None})
    base, champion = chart.bars
    assert (base.low, base.point, base.high) == (90 + 0.2 * 350, 90 + 0.4 * 350, 90 + 0.6 * 350)
    assert (base.y, champion.y) == (15, 45)
    assert champion.figures is None
    assert [(tick.at, tick.label) for tick in chart.ticks] == [
        (90, "0"),
        (177.5, "0.25"),
        (265, "0.5"),
        (352.5, "0.75"),
        (440, "1"),
    ]


def test_a_curve_has_a_line_a_round() -> None:
    drawn = curve("loss", [[0.0, 3.0], [1.0, 2.0]])
    assert drawn is not None
    assert [tick.label for tick in drawn.ticks] == ["0", "1", "2", "3"]
    step, third = 204 / 3, 86 / 3
    assert drawn.lines == (
        ((46.0, 112.0), (round(46 + step, 2), 26.0)),
        ((round(46 + 2 * step, 2), round(112 - third, 2)), (250.0, round(112 - 2 * third, 2))),
    )
    assert drawn.bounds == (round(46 + 1.5 * step, 2),)
    assert (drawn.steps, drawn.last) == (4, "2")


def test_a_value_that_is_missing_or_not_finite_leaves_a_gap() -> None:
    drawn = curve("kl", [[1.0, None, 2.0, math.nan], [3.0]])
    assert drawn is not None
    assert [len(line) for line in drawn.lines] == [1, 1, 1]


def test_a_metric_without_values_has_no_curve() -> None:
    assert curve("kl", [[None, math.inf], []]) is None
    assert curve("kl", []) is None


def test_one_update_is_a_point() -> None:
    drawn = curve("loss", [[0.25]])
    assert drawn is not None
    [[(x, y)]] = drawn.lines
    assert x == 46
    assert 26 < y < 112


@pytest.mark.parametrize(
    ("low", "high", "marks"), [(0.13, 0.47, [0.0, 0.2, 0.4, 0.6]), (0, 9, [0, 5, 10]), (-3, 3, [-4, -2, 0, 2, 4])]
)
def test_marks_are_round_numbers(low: float, high: float, marks: list[float]) -> None:
    assert nice_ticks(low, high) == marks


@example(1.0, -150000001.0)  # both ends just beyond a round number
@given(st.floats(-1e9, 1e9), st.floats(-1e9, 1e9))
def test_marks_enclose_the_values_and_are_few(one: float, other: float) -> None:
    low, high = min(one, other), max(one, other)
    if 0 < high - low < 1e-9 * max(abs(low), abs(high)) or 0 < high - low < 1e-300:
        return  # nothing that twelve digits tell apart
    marks = nice_ticks(low, high)
    assert 3 <= len(marks) <= 5
    slack = 1e-6 * (marks[-1] - marks[0])
    assert marks[0] <= low + slack
    assert high - slack <= marks[-1]
    assert marks == sorted(set(marks))


@pytest.mark.parametrize(
    ("marks", "labels"),
    [
        ([5.540, 5.5405, 5.541], ["5.54", "5.5405", "5.541"]),  # with three digits all of them were 5.54
        ([600.0, 800.0, 1000.0, 1200.0], ["600", "800", "1000", "1200"]),
        ([-0.02, 0.0, 0.02], ["-0.02", "0", "0.02"]),
    ],
    ids=["close", "thousands", "small"],
)
def test_ticks_are_told_apart_by_their_labels(marks: list[float], labels: list[str]):
    assert tick_labels(marks) == labels


@pytest.mark.parametrize("values", [(0.3, 0.1 + 0.2), (1.0, 1.0 - 1e-13), (-0.3, -0.1 - 0.2)])
def test_figures_that_differ_by_rounding_are_a_level_line(values):
    drawn = curve("mean reward", [list(values)])
    assert drawn
    [((_, first), (_, second))] = drawn.lines
    assert first == second
