"""Links that sign in to the pages of `clawpipe up`: only the user can read them, and no other place holds the secret."""

from __future__ import annotations

import base64
import json
import re
import stat
import webbrowser
from html import unescape
from pathlib import Path

import pytest
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from starlette.testclient import TestClient

from clawpipe.cli.main import run
from clawpipe.core.config import NightConfig
from clawpipe.core.services import pages as pages_
from clawpipe.core.services.pages import Pages, write_links
from clawpipe.core.services.prefect_server import announce
from clawpipe.core.services.secret import home_secret
from clawpipe.core.services.sign_in import SignIn, keep_secret, lead_on
from clawpipe.core.services.web import Locked, SameOrigin
from clawpipe.core.store.home import Home
from clawpipe.record.nights.files import REPORT, run_dir
from clawpipe.record.nights.record import create_record

PAGES = Pages("http://127.0.0.1:4200", "http://127.0.0.1:5000")
SECRET = "clawpipe:pass-word"


def site(path: str) -> Starlette:
    async def told(request):
        return PlainTextResponse(f"page {request.url.path}")

    return Starlette(routes=[Route(path, told)])


@pytest.fixture
def locked() -> TestClient:
    app = SameOrigin(Locked(SignIn(site("/nights/"), lead_on), SECRET, open_path="/health"))
    return TestClient(app, base_url="http://127.0.0.1:5000", follow_redirects=False)


@pytest.fixture
def prefect() -> TestClient:
    return TestClient(SameOrigin(SignIn(site("/"), keep_secret)), base_url="http://127.0.0.1:4200")


def test_user_and_password_lead_on_to_an_address_without_them(locked: TestClient):
    """Chromium refuses `fetch` on a page whose address holds a password."""
    answer = locked.get("/sign-in/nights/", auth=("clawpipe", "pass-word"))
    assert (answer.status_code, answer.headers["location"]) == (303, "http://127.0.0.1:5000/nights/")
    assert locked.get("/sign-in/", auth=("clawpipe", "pass-word")).headers["location"] == "http://127.0.0.1:5000/"
    assert locked.get("/nights/", auth=("clawpipe", "pass-word")).text == "page /nights/"


@pytest.mark.parametrize("path", ["/sign-in/", "/sign-in/nights/", "/nights/"])
def test_a_link_without_the_secret_opens_nothing(locked: TestClient, path: str):
    assert locked.get(path).status_code == 401
    assert locked.get(path, auth=("clawpipe", "wrong")).status_code == 401


@pytest.mark.parametrize("path", ["//evil.test/", "/https://evil.test/", "/\\evil.test"])
def test_nobody_is_led_to_another_site(locked: TestClient, path: str):
    answer = locked.get(f"/sign-in{path}", auth=("clawpipe", "pass-word"))
    assert answer.headers["location"].startswith("http://127.0.0.1:5000/")


def test_prefects_page_of_links_runs_a_script_of_its_own(prefect: TestClient):
    page = prefect.get("/sign-in/")
    [script] = re.findall(r'src="([^"]+)"', page.text)
    assert "localStorage" in prefect.get(script).text
    assert "script-src 'self'" in page.headers["content-security-policy"]  # so none could stand in the page itself
    assert prefect.get("/").text == "page /"


def test_only_the_user_can_read_the_links(home: Home):
    home.root.mkdir(parents=True)
    (home.root / "secret").write_text(f"clawpipe:{'x' * 43}\n")
    page = write_links(home, PAGES, Path("/home/a b/report.html"))
    assert stat.S_IMODE(page.stat().st_mode) == 0o600
    links = [unescape(link) for link in re.findall(r'href="([^"]+)"', page.read_text())]
    assert links == [
        f"http://clawpipe:{'x' * 43}@127.0.0.1:5000/sign-in/nights/",
        f"http://127.0.0.1:4200/sign-in/#{base64.b64encode(b'clawpipe:' + b'x' * 43).decode()}",
        f"http://clawpipe:{'x' * 43}@127.0.0.1:5000/sign-in/",
        "file:///home/a%20b/report.html",
    ]


def report(home: Home, label: str) -> Path:
    night = create_record(home, NightConfig(night=label), None).night
    path = run_dir(home, night) / REPORT
    path.write_text("<p>a report")
    return path


def opened(words: list[str], monkeypatch: pytest.MonkeyPatch) -> tuple[int, list[str]]:
    """The exit code of `clawpipe open`, and the addresses that a browser got."""
    asked: list[str] = []
    monkeypatch.setattr(webbrowser, "open", lambda url: asked.append(url) or True)
    with pytest.raises(SystemExit) as end:
        run(["open", *words])
    return end.value.code, asked


def test_the_newest_report_is_opened(home: Home, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    path = report(home, "first")
    create_record(home, NightConfig(night="running"), None)  # which has no report yet
    assert opened([], monkeypatch) == (0, [path.as_uri()])
    assert opened(["--print"], monkeypatch) == (0, [])
    assert capsys.readouterr().out == f"{path}\n"


def test_without_a_report_it_says_how_to_get_one(home: Home, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    assert opened([], monkeypatch) == (2, [])
    assert "clawpipe run --config" in capsys.readouterr().err


def test_while_up_runs_its_pages_are_opened(home: Home, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    path = report(home, "first")
    announce(home, f"{PAGES.prefect}/api", PAGES.mlflow)
    monkeypatch.setattr(pages_, "announced_url", lambda home: f"{PAGES.prefect}/api")  # it answers
    assert opened([], monkeypatch) == (0, [(home.root / "open.html").as_uri()])
    assert opened(["--json"], monkeypatch) == (0, [])
    told = capsys.readouterr()
    assert json.loads(told.out)["report"] == str(path)
    assert home_secret(home).partition(":")[2] not in told.out + told.err


def test_a_machine_without_a_browser_is_told_the_path(
    home: Home, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    path = report(home, "first")
    monkeypatch.setattr(webbrowser, "open", lambda url: False)
    with pytest.raises(SystemExit) as end:
        run(["open"])
    assert end.value.code == 2
    assert str(path) in (told := capsys.readouterr().err)
    assert "--print" in told
