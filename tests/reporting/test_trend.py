"""The page over all nights: what it draws, links and counts, at a few nights and at many."""

from __future__ import annotations

import datetime
import json
import os
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from clawpipe.cli.main import run
from clawpipe.core.store.home import Home
from clawpipe.record.nights.status import Figures, NightStatus, write_status
from clawpipe.record.reporting.html import curve
from clawpipe.record.reporting.trend import Past, past_nights, render, section, trend
from flows.apps import NightPages
from tests.reporting.test_html import EVIL, Element, parsed

START = datetime.datetime(2031, 5, 4, 2, tzinfo=datetime.UTC)


def figures(success: float) -> Figures:
    return Figures(success=success, low=success - 0.1, high=success + 0.1, n=60)


def past(number: int, verdict: str | None = "HOLD", success: float = 0.5, **facts) -> Past:
    heldout = {"base": figures(0.2), "champion": None, "candidate": figures(success)} if verdict else {}
    status = NightStatus(night=f"night-{number}", verdict=verdict, heldout=heldout, seconds=60.0 * (number + 1), **facts)
    return Past(status, START + datetime.timedelta(days=number), "agent", has_report=verdict is not None)


def titles(page: Element) -> list[str]:
    return [caption.text.strip() for caption in page.all("figcaption")]


def test_each_night_links_to_its_report():
    page = parsed(render([past(0), past(1, verdict=None, error=f"no rows\n{EVIL}"), past(2, verdict="PROMOTE")]))
    assert [link.attributes["href"] for link in page.all("a")] == ["runs/night-2/report.html", "runs/night-0/report.html"]
    assert page.all("script") == page.all("img") == page.all("link") == []
    words = page.words()
    assert "1 PROMOTE" in words
    assert "1 without a verdict" in words
    assert "no rows" in words


def test_success_is_drawn_with_its_interval_and_verdict():
    chart = trend("Held-out", [past(0, success=0.5), past(1, verdict=None), past(2, "PROMOTE", success=0.75)], lambda s: s.heldout)
    assert chart
    incumbent, candidate = chart.lines
    # 0 lies at 190, 1 at 8; three nights share what is between 34 and 900
    assert candidate.points == ((pytest.approx(178.33), 99.0), (pytest.approx(755.67), 53.5))
    assert candidate.path == "M178.33 117.2V80.8 M755.67 71.7V35.3"
    assert [y for _, y in incumbent.points] == [pytest.approx(190 - 0.2 * 182)] * 2
    assert {verdict: path.count("M") for verdict, path in chart.verdicts.items()} == {"PROMOTE": 1, "HOLD": 1, "": 1}
    assert [tick.label for tick in chart.dates] == ["2031-05-04", "2031-05-05", "2031-05-06"]


def test_curves_hold_what_the_nights_measured(night: NightStatus):
    """Three rounds: reward of the last one, rows and seconds of all of them. What was not measured has no curve."""
    drawn = section("agent", [Past(night, START, "agent", has_report=True)]).curves
    last = {group: {one.title: one.last for one in curves} for group, curves in drawn.items()}
    assert last["Training"]["mean reward"] == "0.65"
    assert last["Training"]["approximate KL"] == f"{0.01 * 4 / 4 + 0.1:.4g}"
    assert last["Rows"] == {"trained on": "534", "zero-variance group": "216", "duplicate": "18"}
    assert last["Minutes"]["evaluate"] == f"{45.5 / 60:.4g}"
    assert last["Thousand tokens"] == {"curate: chosen rows": "120.4"}
    assert "tokens of a held-out reply" not in last["Training"]


def test_replies_that_nobody_could_verify_were_sampled(night: NightStatus):
    entry = next(step for step in night.steps if step.name == "evaluate/candidate")
    tried = entry.model_copy(update={"rows_in": 100, "rows_out": 60, "details": {"reply_tokens": 50.0}})
    drawn = section("agent", [Past(night.model_copy(update={"steps": [tried]}), START, "agent", has_report=True)]).curves
    assert [(one.title, one.last) for one in drawn["Thousand tokens"]] == [("evaluate: replies", "5")]


def test_models_have_sections_of_their_own():
    other = Past(past(5).status, START, "other", has_report=True)
    headings = [one.text.strip() for one in parsed(render([past(0), past(1), other])).all("h2", "model")]
    assert headings == ["other", "agent"]


def test_many_nights_make_a_page_that_opens():
    """Beside what 1,000 nights give, the trend of each curve is a line of means; the older nights are folded."""
    page = render([past(number, success=0.3 + 0.0004 * number) for number in range(1000)])
    assert len(page) < 2_000_000
    document = parsed(page)
    assert len(document.all("circle")) == 0
    assert document.all("summary")[0].text == "950 earlier ones"
    assert "held-out" in " ".join(titles(document)).lower()


def test_means_of_neighbours_show_the_trend_of_many_values():
    few, many = (curve("x", [[float(n % 2) for n in range(count)]], "night") for count in (200, 300))
    assert few
    assert many
    assert few.means == ()
    assert {y for _, y in many.means} == {69.0}  # half of the way between 112 and 26
    assert len(many.means) == 50


@pytest.fixture
def three(home: Home, monkeypatch: pytest.MonkeyPatch) -> Home:
    """Nights in a home, the last of which is damaged."""
    monkeypatch.setenv("CLAWPIPE_HOME", str(home.root))
    for number in range(3):
        made = past(number).status
        made.run_dir = str(home.runs / made.night)
        write_status(made)
        record = Path(made.run_dir) / "night.json"
        record.write_text("{}")
        os.utime(record, (1e9 - number, 1e9 - number))
        (record.parent / "report.html").write_text(f"report {number}")
        (record.parent / "config.json").write_text(json.dumps({"registry": {"model_name": "agent"}}))
    (home.runs / "night-2" / "status.json").write_text("{")
    return home


def test_nights_stand_in_the_order_in_which_they_began(three: Home):
    assert [(one.status.night, one.model) for one in past_nights(three)] == [("night-1", "agent"), ("night-0", "agent")]


def test_the_command_writes_the_page(three: Home, capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit, match="0"):
        run(["report", "--all", "--json"])
    said = json.loads(capsys.readouterr().out)
    assert said == {"file": str(three.root / "nights.html"), "nights": 2}
    assert "2 nights" in Path(said["file"]).read_text()
    with pytest.raises(SystemExit, match="0"):
        run(["report", "--night", "night-0"])
    assert Path(capsys.readouterr().out.strip()).read_text() == "report 0"


def test_a_night_without_a_report_gives_way_to_one_that_has_one(three: Home, capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit, match="0"):
        run(["report"])
    assert capsys.readouterr() == (f"{three.runs}/night-0/report.html\n", "")
    (three.runs / "night-0" / "report.html").unlink()
    with pytest.raises(SystemExit, match="0"):
        run(["report", "--json"])
    said = capsys.readouterr()
    assert json.loads(said.out)["night"] == "night-1"
    assert said.err == "the report of night-1: night-0 has none yet, one is written at its end\n"


def test_a_home_without_nights_says_what_makes_one(home: Home, monkeypatch, capsys: pytest.CaptureFixture[str]):
    monkeypatch.setenv("CLAWPIPE_HOME", str(home.root))
    with pytest.raises(SystemExit, match="2"):
        run(["report", "--all"])
    assert "no night has run here" in capsys.readouterr().err
    assert "No night has run here yet" in render([])


def test_it_is_served_beside_another_application(three: Home):
    async def other(scope, receive, send):
        await send({"type": "http.response.start", "status": 418, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    client = TestClient(NightPages(other, three))
    assert "2 nights" in client.get("/nights").text
    assert client.get("/nights/runs/night-0/report.html").text == "report 0"
    for foreign in ("night-9", "..%2F..", ".hidden"):
        assert client.get(f"/nights/runs/{foreign}/report.html").status_code in (404, 418)
    assert client.get("/").status_code == 418
