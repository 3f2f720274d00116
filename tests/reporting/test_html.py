"""The report: well-formed, escaped, and drawn to scale."""

from __future__ import annotations

from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path

import pytest

from clawpipe.core.config.night import NightConfig
from clawpipe.record.nights.status import NightStatus
from clawpipe.record.reporting.html import render, write_report
from clawpipe.record.reporting.transcripts import Answer, Transcript
from tests.reporting.conftest import choice

VOID = {"meta", "br", "img", "link", "input", "hr"}
EVIL = '</title><script>alert(1)</script><img src=x onerror="alert(2)">&'


@dataclass
class Element:
    tag: str
    attributes: dict[str, str]
    text: str = ""
    children: list[Element] = field(default_factory=list)

    def all(self, tag: str, css: str = "") -> list[Element]:
        """Elements below with this tag and class, in document order."""
        below = [element for child in self.children for element in [child, *child.all("*")]]
        wanted = [element for element in below if tag in ("*", element.tag)]
        return [element for element in wanted if not css or css in element.attributes.get("class", "").split()]

    def words(self) -> str:
        return " ".join([self.text.strip(), *(child.words() for child in self.children)]).strip()


class Parser(HTMLParser):
    """Builds the tree, and fails where a tag is not closed in order."""

    def __init__(self) -> None:
        super().__init__()
        self.open = [Element("document", {})]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert len(dict(attrs)) == len(attrs), f"an attribute twice in {tag}"
        element = Element(tag, {name: value or "" for name, value in attrs})
        self.open[-1].children.append(element)
        if tag not in VOID:
            self.open.append(element)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        self.handle_endtag(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop().tag == tag

    def handle_data(self, data: str) -> None:
        self.open[-1].text += data


def parsed(page: str) -> Element:
    parser = Parser()
    parser.feed(page)
    parser.close()
    [document] = parser.open
    return document


def report(status: NightStatus, transcripts: list[Transcript] | None = None) -> Element:
    return parsed(render(status, NightConfig(), transcripts or []))


def talk(text: str) -> Transcript:
    answers = (Answer("base", False, (("assistant", text),)), Answer("candidate", True, (("tool", "17"), ("assistant", text))))
    return Transcript(item_id=text, slice=text, outcome="won", question=text, answers=answers)


def test_it_is_one_file_in_the_run_directory(night: NightStatus) -> None:
    run_dir = Path(night.run_dir)
    path = write_report(night, run_dir, NightConfig())
    assert path == run_dir / "report.html"
    assert path.read_text() == render(night, NightConfig())


def test_it_needs_nothing_else_and_runs_no_script(night: NightStatus) -> None:
    page = report(night)
    for tag in ("script", "link", "img", "iframe", "object"):
        assert page.all(tag) == []
    assert not [
        name for element in page.all("*") for name in element.attributes if name in ("src", "href") or name.startswith("on")
    ]
    [policy] = [meta for meta in page.all("meta") if "http-equiv" in meta.attributes]
    assert policy.attributes["content"].startswith("default-src 'none'")


def test_the_verdict_and_its_reasons_stand_at_the_head(night: NightStatus) -> None:
    [banner] = report(night).all("section", "verdict")
    assert "PROMOTE" in banner.attributes["class"].split()
    assert banner.words() == f"PROMOTE {night.reasons[0]}"


def test_each_warning_stands_once_beside_the_verdict(night: NightStatus) -> None:
    night.reasons, night.warnings = ["idle", *night.reasons], ["idle", f"MLflow was not told {EVIL}"]
    [banner] = report(night).all("section", "verdict")
    assert banner.words() == f"PROMOTE idle {night.reasons[1]} Warning: MLflow was not told {EVIL}"


def test_intervals_are_drawn_where_the_figures_say(night: NightStatus) -> None:
    [chart] = report(night).all("svg", "intervals")
    [candidate] = chart.all("g", "candidate")
    [line] = candidate.all("line", "interval")
    [point] = candidate.all("circle")
    # the scale: 0 lies at 90, 1 at 440; figures 0.7 [0.625, 0.766]
    assert float(line.attributes["x1"]) == pytest.approx(90 + 0.625 * 350, abs=0.01)
    assert float(line.attributes["x2"]) == pytest.approx(90 + 0.766 * 350, abs=0.01)
    assert float(point.attributes["cx"]) == pytest.approx(90 + 0.7 * 350, abs=0.01)
    assert chart.all("g", "champion") == []
    assert "0.700" in chart.words()
    assert "n=160" in chart.words()


def test_slices_are_tabled(night: NightStatus) -> None:
    rows = [row.words().split() for row in report(night).all("tr")]
    assert ["weather", "40", "2", "6", "-10.0", "0.99"] in rows
    assert ["stock", "40", "25", "0", "+62.5", "0.99"] in rows
    assert ["price", "40", "15", "15", "+0.0", "0.99"] in rows


def test_curves_show_every_update_of_every_round(night: NightStatus) -> None:
    curves = {figure.all("figcaption")[0].text.strip(): figure for figure in report(night).all("figure", "curve")}
    assert {"loss", "approximate KL", "clipped share"} <= curves.keys()
    assert len(curves["loss"].all("polyline")) == 3
    assert len(curves["loss"].all("circle")) == 12
    assert len(curves["loss"].all("line", "bound")) == 2


def test_a_metric_that_was_not_computed_has_no_curve(night: NightStatus) -> None:
    steps = [step.model_copy(deep=True) for step in night.steps]
    for update in [update for step in steps for update in step.details.get("updates", [])]:
        del update["clip_frac"]
    titles = [caption.text.strip() for caption in report(night.model_copy(update={"steps": steps})).all("figcaption")]
    assert "clipped share" not in titles
    assert "loss" in titles


def test_time_bars_are_shares_of_the_longest_step(night: NightStatus) -> None:
    bars = {row.children[0].text: row.all("div") for row in report(night).all("tr") if row.all("td", "time")}
    assert len(bars) == len(night.steps)
    assert bars["round-2/train"][0].attributes["style"] == "width: 100.0%"
    assert bars["evaluate/base"][0].attributes["style"] == f"width: {100 * 22.0 / 61.7:.1f}%"


def test_rows_and_what_was_filtered_are_tabled(night: NightStatus) -> None:
    [row] = [row for row in report(night).all("tr") if row.children[0].text == "round-2/curate" and row.all("td", "state")]
    assert row.words().split()[:5] == ["round-2/curate", "ran", "256", "178", "72"]
    assert "duplicate" in row.words()


def test_data_are_escaped_wherever_they_stand(night: NightStatus) -> None:
    steps = [step.model_copy(update={"filtered": {EVIL: 1}, "name": f"round-1/{EVIL}"}) for step in night.steps[:5]]
    gate = night.steps[-3].model_copy(deep=True)
    gate.details["slices"][0]["slice"] = EVIL
    status = night.model_copy(update={"night": EVIL, "reasons": [EVIL], "steps": [*steps, gate], "heldout": {EVIL: None}})
    page = report(status, [talk(EVIL)])
    assert page.all("script") == page.all("img") == []
    assert page.all("title")[0].text.endswith(EVIL)
    assert page.all("section", "verdict")[0].all("p")[0].text == EVIL
    assert [pre.text for pre in page.all("pre")][:3] == [EVIL, "17", EVIL]


def test_conversations_stand_side_by_side(night: NightStatus) -> None:
    [shown] = [details for details in report(night, [talk("There are 17.")]).all("details") if details.all("dl")]
    assert [heading.words() for heading in shown.all("h3")] == ["base failed", "candidate solved"]


def test_a_night_under_way_has_a_report_too(night: NightStatus) -> None:
    page = report(NightStatus(night="n", steps=night.steps[:3], run_dir=night.run_dir))
    assert page.all("section", "verdict")[0].words() == "No verdict The night has not come to its end."
    assert parsed(render(NightStatus(night="empty"), NightConfig())).all("figure") == []


def test_the_table_of_rounds_marks_candidate_and_lost(night: NightStatus) -> None:
    assert "the candidate" not in report(night).words()
    night.choice = choice()
    document = report(night)
    table = next(table for table in document.all("table") if table.all("th")[0].words() == "Policy of")
    cells = [[cell.words() for cell in row.all("td")] for row in table.all("tr")[1:]]
    assert cells == [
        ["the start", "0.300", "0.250"],
        ["round 1", "0.400", "0.250 +10.0 ± 5.0"],
        ["round 2, the candidate", "0.500", "0.250 +20.0 ± 5.0"],
        ["round 3", "0.600", "0.250 -30.0 ± 5.0 lost"],
    ]


def test_probes_are_a_curve_with_a_gap_where_none_was_verified(night: NightStatus) -> None:
    assert "success on train items" not in report(night).words()
    for place, rates in ((7, [0.25, 0.5]), (12, [None, 0.75])):
        probes = [{"step": 2 * number, "items": 4} | ({"success": rate} if rate else {}) for number, rate in enumerate(rates, 1)]
        entry = night.steps[place].model_copy(update={"name": "round-1/probe", "details": {"probes": probes}})
        night.steps.insert(place, entry)
    [curve] = [figure for figure in report(night).all("figure", "curve") if "success on train items" in figure.words()]
    assert "0.75" in curve.words()
    assert "4 probes" in curve.words()
