"""The table's figures, from conversations and nights made by hand."""

import json

import pytest

from clawpipe.start.simulation.headline import Headline
from clawpipe.start.simulation.report import LiveNight, LiveReport, gain_of, hours_of, plot, table
from tests.simulation.test_crowd import talk

NIGHT = LiveNight(
    night="live-1-x", verdict="PROMOTE", reason="It is better.", version="1", captured=30, judged=18, agreed=0.9, trained=18,
    heldout=0.5, seconds=60.0,
)  # fmt: skip


HEADLINE = Headline(
    decision="PROMOTE", base=0.25, champion=0.75, interval=(0.6, 0.9), n=40, wins=22, losses=2, p=0.00002,
)  # fmt: skip


def talks():
    first = [talk(f"a{n}", 0, "base", success=n < 1) for n in range(4)]
    return [*first, *[talk(f"b{n}", 1, "1" if n else "base", success=n < 3) for n in range(4)]]


def test_an_hour_has_its_conversations_and_the_night_after_it():
    first, last = hours_of(talks(), [NIGHT])
    assert (first.hour, first.versions, first.conversations, first.success, first.night) == (1, ["base"], 4, 0.25, NIGHT)
    assert (last.hour, last.versions, last.success, last.night) == (2, ["1", "base"], 0.75, None)
    assert gain_of([first, last]) == 0.5


def test_intervals_are_wilsons():
    """1 of 4: (p + z^2/2n +- z sqrt(p(1-p)/n + z^2/4n^2)) / (1 + z^2/n) with z = 1.959964, by hand."""
    (first, _) = hours_of(talks(), [NIGHT])
    assert (first.low, first.high) == pytest.approx((0.045587, 0.699358), abs=1e-5)


def test_the_table_and_the_plot_show_each_hour(tmp_path):
    from rich.console import Console

    hours = hours_of(talks(), [NIGHT])
    plot(hours, tmp_path / "live.png")
    assert (tmp_path / "live.png").read_bytes().startswith(b"\x89PNG")
    report = LiveReport(seed=0, hours=hours, headline=HEADLINE, gain=0.5, failed_requests=0, minutes=1.0, plot="live.png")
    console = Console(width=140, record=True)
    console.print(table(report))
    shown = console.export_text()
    assert "PROMOTE, version 1" in shown
    assert "held-out success 0.250 to 0.750: 22 won, 2 lost, PROMOTE" in shown
    assert "0.250 [0.046, 0.699]" in shown
    assert json.loads(report.model_dump_json())["gain"] == 0.5
