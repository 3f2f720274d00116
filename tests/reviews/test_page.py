"""The local page: who may use it, and what its forms do."""

import re

import pytest
from starlette.testclient import TestClient

from clawpipe.ingest.options import Options
from clawpipe.ingest.run import ingest
from clawpipe.reviews.decisions import Decisions
from clawpipe.reviews.page import review_app
from clawpipe.services.secret import home_secret
from flows.review import review_queue
from tests.reviews.conftest import line

HERE = "http://127.0.0.1:8000"


@pytest.fixture
def page(home):
    user, _, password = home_secret(home).partition(":")
    app = review_app(home, review_queue(home, None, ask_judges=False), "ann")
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


@pytest.mark.parametrize("headers", [{"origin": "http://evil.test"}, {"origin": "null"}, {"host": "evil.test"}])
def test_pages_of_other_sites_are_refused(home, page, headers):
    fields = forms(page, "silent")
    answer = page.post("/decide", data=fields | {"decision": "approve", "by": "mallory"}, headers=headers)
    assert answer.status_code == 403
    assert Decisions.of(home).every() == []


def test_forms_approve_reject_edit_and_take_back(home, page):
    for session, words in {
        "praised": {"decision": "approve"},
        "blamed": {"decision": "reject", "reason": "Paris"},
        "silent": {"decision": "edit", "text": "Eight.", "turn": "0"},
    }.items():
        done = page.post("/decide", data=forms(page, session) | words | {"by": "bob"}, headers={"origin": HERE})
        assert done.status_code == 200
        assert "by bob at" in done.text
    made = {one.verdict: one for one in Decisions.of(home).every()}
    assert (made["rejected"].reason, made["edited"].text, made["edited"].turn) == ("Paris", "Eight.", 0)
    assert "Nothing waits." in page.get("/").text
    decided = page.get("/?show=decided").text
    seen = re.findall(r'name="row" value="([^"]*)"><input type="hidden" name="seen" value="(\d+)"', decided)
    row, number = next(one for one in seen if one[0] == made["approved"].row_id)
    page.post("/decide", data={"row": row, "seen": number, "decision": "reopen", "by": "bob"})
    assert Decisions.of(home).last()[row].verdict == "open"


def test_a_second_tab_that_decides_a_decided_row_says_so(home, page):
    stale = forms(page, "silent")
    page.post("/decide", data=stale | {"decision": "reject", "by": "ann", "reason": "six legs"})
    late = page.post("/decide", data=stale | {"decision": "approve", "by": "bob"})
    assert late.status_code == 409
    assert re.search(r"Nothing was recorded: [0-9a-f]{32} is decided already, rejected by ann at .*six legs", late.text)
    assert [one.verdict for one in Decisions.of(home).every()] == ["rejected"]


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"decision": "approve"},
        {"decision": "approve", "seen": "x"},
        {"decision": "shrug", "seen": "0"},
        {"decision": "edit", "seen": "0", "text": "  "},
        {"decision": "edit", "seen": "0", "text": "Eight.", "turn": "7"},
    ],
)
def test_a_form_that_makes_no_sense_records_nothing(home, page, fields):
    answer = page.post("/decide", data={"row": forms(page, "silent")["row"]} | fields)
    assert (answer.status_code, "Nothing was recorded" in answer.text) == (400, True)
    assert Decisions.of(home).every() == []


def test_a_huge_form_is_refused(page):
    assert page.post("/decide", data={"text": "x" * 1_100_000}).status_code == 413


def test_what_rows_say_is_no_markup(home, page, tmp_path):
    file = tmp_path / "evil.jsonl"
    file.write_text(line("evil", "Say <b>hi</b>, please, to all.", "<script>alert(1)</script></textarea>", ""))
    ingest(home, [str(file)], Options())
    user, _, password = home_secret(home).partition(":")
    client = TestClient(review_app(home, review_queue(home, None, ask_judges=False), "ann"), base_url=HERE)
    client.auth = (user, password)
    answer = client.get("/")
    assert "<script" not in answer.text
    assert "&lt;script&gt;alert(1)&lt;/script&gt;&lt;/textarea&gt;" in answer.text
    assert answer.headers["content-security-policy"].startswith("default-src 'self'")
