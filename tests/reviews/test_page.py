"""The local page: who may use it, and what its forms do."""

import re

import pytest
from starlette.testclient import TestClient

from clawpipe.core.services.secret import home_secret
from clawpipe.data.forgotten.subject import Subject
from clawpipe.data.ingest.intake.options import Options
from clawpipe.data.ingest.intake.run import ingest
from clawpipe.record.removal.forget import forget
from clawpipe.record.reviews.open import open_decisions
from clawpipe.record.reviews.page import review_app
from flows.review import review_queue
from tests.reviews.conftest import line

HERE = "http://127.0.0.1:8000"


@pytest.fixture
def page(home):
    user, _, password = home_secret(home).partition(":")
    app = review_app(home, lambda: review_queue(home, None, ask_judges=False), "ann")
    with TestClient(app, base_url=HERE) as client:
        client.auth = (user, password)
        yield client


def forms(page, session):
    """The hidden fields of the forms of a session's row."""
    text = page.get("/").text
    [article] = [one for one in text.split("<article")[1:] if f"session {session}" in one]
    return dict(re.findall(r'name="(row|seen|show)" value="([^"]*)"', article))


def test_without_the_secret_nothing_is_shown_or_decided(home, page):
    page.auth = None
    assert page.get("/").status_code == 401
    assert page.post("/decide", data={"row": "x"}).status_code == 401
    page.auth = ("clawpipe", "wrong")
    assert page.get("/").status_code == 401


def test_pages_of_other_sites_are_refused(home, page):
    fields = forms(page, "silent") | {"decision": "approve", "by": "mallory"}
    for headers in ({"origin": "http://evil.test"}, {"origin": "null"}, {"host": "evil.test"}):
        assert page.post("/decide", data=fields, headers=headers).status_code == 403
    assert open_decisions(home).every() == []


def test_forms_approve_reject_edit_and_take_back(home, page):
    for session, words in {
        "praised": {"decision": "approve"},
        "blamed": {"decision": "reject", "reason": "Paris"},
        "silent": {"decision": "edit", "text": "Eight.", "turn": "0"},
    }.items():
        done = page.post("/decide", data=forms(page, session) | words | {"by": "bob"}, headers={"origin": HERE})
        assert done.status_code == 200
        assert "by bob at" in done.text
    made = {one.verdict: one for one in open_decisions(home).every()}
    assert (made["rejected"].reason, made["edited"].text, made["edited"].turn) == ("Paris", "Eight.", 0)
    assert "Nothing waits." in page.get("/").text
    decided = page.get("/?show=decided").text
    seen = re.findall(r'name="row" value="([^"]*)"><input type="hidden" name="seen" value="(\d+)"', decided)
    row, number = next(one for one in seen if one[0] == made["approved"].row_id)
    page.post("/decide", data={"row": row, "seen": number, "decision": "reopen", "by": "bob"})
    assert open_decisions(home).last()[row].verdict == "open"


def test_lines_of_an_answer_are_those_of_a_model(home, page, tmp_path):
    """Browsers end lines with a carriage return, which dpo learnt to prefer to the same answer without."""
    file = tmp_path / "more.jsonl"
    file.write_text(line("lines", "Name two fruits, please.", "- apple\n- pear", "") + "\n")
    ingest(home, [str(file)], Options())
    page.get("/?anew=1")
    fields = forms(page, "lines") | {"decision": "edit", "turn": "0"}
    assert page.post("/decide", data=fields | {"text": "- apple\r\n- pear"}).status_code == 400
    page.post("/decide", data=fields | {"text": "- apple\r\n- plum"})
    assert [one.text for one in open_decisions(home).every()] == ["- apple\n- plum"]


def test_a_second_tab_that_decides_a_decided_row_says_so(home, page):
    stale = forms(page, "silent")
    page.post("/decide", data=stale | {"decision": "reject", "by": "ann", "reason": "six legs"})
    late = page.post("/decide", data=stale | {"decision": "approve", "by": "bob"})
    assert late.status_code == 409
    assert re.search(r"Nothing was recorded: [0-9a-f]{32} is decided already, rejected by ann at .*six legs", late.text)
    assert [one.verdict for one in open_decisions(home).every()] == ["rejected"]


def test_a_form_that_makes_no_sense_records_nothing(home, page):
    row = {"row": forms(page, "silent")["row"]}
    for fields in (
        {},
        {"decision": "approve"},
        {"decision": "approve", "seen": "x"},
        {"decision": "shrug", "seen": "0"},
        {"decision": "edit", "seen": "0", "text": "  "},
        {"decision": "edit", "seen": "0", "text": "Eight.", "turn": "7"},
    ):
        answer = page.post("/decide", data=row | fields)
        assert (answer.status_code, "Nothing was recorded" in answer.text) == (400, True)
    assert page.post("/decide", data={"text": "x" * 1_100_000}).status_code == 413
    assert open_decisions(home).every() == []


def test_the_page_goes_on_when_rows_were_forgotten(home, page):
    gone = forms(page, "silent")
    forget(home, Subject(session="silent"))
    assert "session silent" not in page.get("/").text
    assert page.post("/decide", data=gone | {"decision": "approve"}).status_code == 400


@pytest.mark.parametrize("decision", ["approve", "edit"])
def test_a_form_cannot_decide_about_a_forgotten_row(home, page, decision):
    """The page that somebody still has open once recorded an approval with its reason, and failed for an edit."""
    gone, other = forms(page, "silent"), forms(page, "praised")
    forget(home, Subject(session="silent"))
    answer = page.post("/decide", data=gone | {"decision": decision, "text": "Eight.", "reason": "I know them"})
    assert (answer.status_code, "no row of the queue" in answer.text) == (400, True)
    assert open_decisions(home).every() == []
    assert page.post("/decide", data=other | {"decision": "approve"}, follow_redirects=False).status_code == 303


def test_what_rows_say_is_no_markup(home, page, tmp_path):
    file = tmp_path / "evil.jsonl"
    file.write_text(line("evil", "Say <b>hi</b>, please, to all.", "<script>alert(1)</script></textarea>", ""))
    ingest(home, [str(file)], Options())
    answer = page.get("/?anew")
    assert "<script" not in answer.text
    assert "&lt;script&gt;alert(1)&lt;/script&gt;&lt;/textarea&gt;" in answer.text
    assert answer.headers["content-security-policy"].startswith("default-src 'self'")
