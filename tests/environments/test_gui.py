"""Work on web pages in a real Chromium: MiniWoB's, and apps of the user's own."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from contextlib import ExitStack, closing, contextmanager
from functools import cache
from importlib.metadata import PackageNotFoundError, distribution

import psutil
import pytest

from clawpipe.core.conversation.messages import Message, ToolCall
from clawpipe.errors import ConfigError, NotFoundError
from clawpipe.play.environments.browser.sites import read_tasks
from clawpipe.play.environments.discovery import load_environment
from clawpipe.play.environments.play import Play
from tests.environments.gold_gui import GOLD, play

try:
    PAGES = distribution("miniwob")
except PackageNotFoundError:
    PAGES = None
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("chromium") is None, reason="no chromium: apt-get install chromium"),
    pytest.mark.skipif(PAGES is None, reason="no pages: pip install --no-deps miniwob"),
]
HOSTILE = """<title>Shop</title><h1>Shop</h1>
<button onclick="alert('Sure?')">Ask</button>
<button onclick="window.open('/other.html')">Window</button>
<button onclick="while (true) {}">Hang</button>
<a href="/list.csv" download>Download</a>
<a href="http://example.com/">Away</a>
<a href="/other.html">Other</a>
<button disabled>Closed</button>
<button onclick="fetch('http://example.com/').catch(() => document.title = 'refused')">Fetch</button>
<label>Name <input id="name"></label>
<button onclick="setTimeout(() => document.title = document.querySelector('#name').value, 500)">Save</button>"""
ALL_TRAIN = 1e-9  # share of the held-out items


def descendants(process):
    """Return the ids of a process's children and of theirs."""
    return [child.pid for child in psutil.Process(process).children(recursive=True)]


def is_chromium(process):
    """Whether a process is Chromium's first one."""
    try:
        line = " ".join(psutil.Process(process).cmdline())
    except (psutil.NoSuchProcess, psutil.ZombieProcess):
        return False
    return "--remote-debugging-pipe" in line and "--type=" not in line


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    return tmp_path_factory.mktemp("gui")


@pytest.fixture(scope="module")
def miniwob(kept):
    """An environment of all pages that the scripted agents solve."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CLAWPIPE_HOME", str(kept))
        environment = load_environment("gui", {"pages": list(GOLD), "share": ALL_TRAIN, "seconds": 60.0})
    yield environment
    environment.browser.close()


@pytest.fixture(scope="module")
def items(miniwob):
    return {item.slice: item for item in miniwob.items("train", len(GOLD), 0)}


QUICK = {"choose-list", "login-user"}


@pytest.mark.parametrize("page", [page if page in QUICK else pytest.param(page, marks=pytest.mark.long) for page in GOLD])
def test_a_scripted_agent_solves_the_page(miniwob, items, page):
    ending = play(miniwob, items[page], GOLD[page])
    outcome = miniwob.verify(items[page], [], ending.verdict)
    assert (outcome.value, outcome.success, ending.error) == (1.0, True, "")


def test_who_does_nothing_gets_nothing(miniwob, items):
    for item in (items[page] for page in QUICK):
        ending = play(miniwob, item, lambda instruction, see: iter(()))
        assert miniwob.verify(item, [], ending.verdict).value == 0


@pytest.fixture(scope="module")
def app(kept):
    """An app in a folder, whose page does all that a page should not."""
    folder = kept / "app"
    folder.mkdir()
    (folder / "index.html").write_text(HOSTILE)
    (folder / "other.html").write_text("<title>Other</title><p>Elsewhere</p>")
    (folder / "list.csv").write_text("1,2")
    (kept / "secret.txt").write_text("secret")
    return folder


@contextmanager
def opened(app, *tasks, **options):
    """Yield an environment of the app."""
    file = app.parent / "tasks.jsonl"
    file.write_text("\n".join(map(json.dumps, tasks or [{"task": "Save Ada.", "check": "document.title == 'Ada'"}])))
    given = {"tasks": str(file), "site": str(app), "share": ALL_TRAIN, "seconds": 60.0}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CLAWPIPE_HOME", str(app.parent))
        environment = load_environment("gui", given | options)
    try:
        yield environment
    finally:
        environment.browser.close()


@pytest.fixture
def site(app):
    """site(*tasks, **options): an environment of the app, which ends with the test."""
    with ExitStack() as ends:
        yield lambda *tasks, **options: ends.enter_context(opened(app, *tasks, **options))


@pytest.fixture(scope="module")
def shop(app):
    with opened(app) as environment:
        yield environment


@pytest.fixture
def run():
    """run(environment): an episode on the environment's page, which ends with the test."""
    running = []
    yield lambda environment: running.append(Running(environment)) or running[-1]
    for one in running:
        one.play.close()


@cache
def first_item(environment):
    return environment.items("train", 1, 0)[0]


class Running:
    def __init__(self, environment):
        self.item = first_item(environment)
        self.environment, self.messages, self.play = environment, list(self.item.messages), Play(environment, self.item, 0)

    def do(self, tool, **arguments):
        """Return what the policy sees after a call."""
        self.messages.append(Message("assistant", "", (ToolCall("c", tool, json.dumps(arguments)),)))
        self.answer = self.play.answer(self.messages)
        self.messages += self.answer.messages
        return self.messages[-1].content

    def click(self, name):
        page = [message for message in self.messages if message.content.count("\n") > 3][-1].content
        return self.do("click", id=next(line.split()[0] for line in page.splitlines() if name in line))

    def end(self):
        self.play.end("done")
        return self.play.ending

    def outcome(self):
        return self.environment.verify(self.item, self.messages, self.end().verdict)


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("Ask", "the page opened a dialog: Sure?"),
        ("Window", "the page opened a new window: "),
        ("Download", "the page began a download: list.csv"),
    ],
)
def test_what_leaves_the_page_ends_the_episode_and_is_said(run, shop, name, why):
    running = run(shop)
    assert running.click(name).startswith(f"The task has ended. {why}")
    assert running.answer.done
    outcome = running.outcome()
    assert (outcome.value, outcome.reason.startswith(why)) == (0.0, True)


def test_a_new_window_that_never_loads_ends_the_episode(run, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        place = f"http://127.0.0.1:{silent.getsockname()[1]}/"
        (tmp_path / "app").mkdir()
        (tmp_path / "app" / "index.html").write_text(f"<p>1<p>2<p>3<button onclick=\"window.open('{place}')\">Window</button>")
        with opened(tmp_path / "app") as environment:
            assert run(environment).click("Window").startswith(f"The task has ended. the page opened a new window: {place}")


def test_half_a_character_of_a_page_ends_no_episode(run, tmp_path):
    (tmp_path / "app").mkdir()
    page = r"""<p>1<p>2<p>3<button onclick="this.textContent = 'Half \ud83d'">Whole</button>"""
    (tmp_path / "app" / "index.html").write_text(page)
    with opened(tmp_path / "app") as environment:
        assert 'button "Half \ufffd"' in run(environment).click("Whole")


def test_an_app_is_worked_on_and_its_check_says_the_reward(run, shop):
    running = run(shop)
    box = next(line.split()[0] for line in running.item.messages[0].content.splitlines() if "textbox" in line)
    assert f'{box} textbox "Name" active: Ada' in running.do("type", id=box, text="Ada")
    assert running.outcome().value == 0.0
    running = run(shop)
    running.do("type", id=box, text="Ada")
    running.click("Save")  # which the page does half a second later
    assert running.outcome().success


@pytest.mark.parametrize(
    ("tool", "arguments", "error"),
    [
        ("click", {"id": "99"}, "error: no element '99' on the page"),
        ("click", {"id": "x"}, "error: no element 'x' on the page"),
        ("click", {}, "error: no element '' on the page"),
        ("type", {"id": "1", "text": "a"}, "error: type: it takes no text"),
        ("select", {"id": "1", "option": "a"}, "error: select: it is no list of options"),
        ("press", {"key": "Nonsense"}, "error: press: there is no such key"),
        ("go", {"url": "http://example.com/"}, "error: only pages of http://site.localhost can be opened"),
        ("go", {"url": "file:///etc/passwd"}, "error: only pages of http://site.localhost can be opened"),
        ("fly", {}, "error: no tool 'fly'"),
    ],
)
def test_an_action_that_cannot_be_done_is_told_in_a_line(run, shop, tool, arguments, error):
    running = run(shop)
    assert running.do(tool, **arguments) == error
    assert not running.answer.done


def test_the_policy_reaches_its_own_site_and_nothing_else(run, shop):
    running = run(shop)
    running.click("Fetch")
    assert running.play._episode._tab.tell("document.title") == "refused"
    assert 'heading "Shop"' in running.click("Away")
    running = run(shop)
    assert "Elsewhere" in running.do("go", url="/other.html")
    assert "not found" in running.do("go", url="/..%2fsecret.txt")


@pytest.mark.long
def test_a_page_that_hangs_ends_its_episode_alone(run, site):
    environment = site(seconds=10.0)
    other, hanging = run(environment), run(environment)
    hanging.click("Hang")
    assert hanging.answer.done
    assert hanging.play.ending.error.startswith("respond: PageError: the page did not answer within 10 s")
    assert "Elsewhere" in other.do("go", url="/other.html")


@pytest.mark.long
def test_a_browser_that_dies_ends_the_episodes_of_its_time(run, site):
    environment = site()
    running = run(environment)
    (chromium,) = [child for child in descendants(environment.browser.process) if is_chromium(child)]
    os.kill(chromium, signal.SIGKILL)
    running.click("Save")
    assert running.play.ending.error.startswith("respond: PageError: the browser has ended")
    assert "Elsewhere" in run(environment).do("go", url="/other.html")


def test_screenshots_lie_in_the_home_under_their_digest(run, shop, kept):
    running = run(shop)
    running.click("Other")
    shots = running.end().verdict.evidence["screenshots"]
    assert len(shots) == 2
    for digest in shots:
        picture = (kept / "screenshots" / digest[:2] / f"{digest}.png").read_bytes()
        assert hashlib.sha256(picture).hexdigest() == digest


@pytest.mark.long
def test_equal_actions_give_equal_pages_and_screenshots(miniwob, items):
    once, again = (play(miniwob, items["login-user"], GOLD["login-user"]).verdict for _ in range(2))
    assert once == again


@pytest.mark.long
def test_steps_and_the_text_of_a_page_are_bounded(run, site):
    running = run(site(steps=2, characters=60))
    assert running.item.messages[0].content.splitlines()[-1].endswith(" more lines)")
    running.do("press", key="Tab")
    assert not running.answer.done
    running.do("press", key="Tab")
    assert running.answer.done
    assert running.outcome().reason == "all steps are used up"


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"pages": ["click-nothing"]}, "MiniWoB has no page 'click-nothing'"),
        ({"pages": []}, "pages names each page once"),
        ({"pages": ["click-tab", "click-tab"]}, "pages names each page once"),
        ({"browser": "/no/chromium"}, "no such program: /no/chromium"),
        ({"share": 1}, "share is between 0 and 1"),
        ({"steps": 0}, "steps, seconds and characters are above 0"),
    ],
)
def test_options_that_cannot_be_are_refused_in_a_line(options, what):
    with pytest.raises(ConfigError, match=what):
        load_environment("gui", options)


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("{", "no JSON"),
        ("[]", "no JSON object"),
        ('{"check": "true"}', "it needs a `task`"),
        (
            r'{"task": "\ud83d", "check": "true"}',
            "a text of it has half a surrogate pair",
        ),
        ('{"task": "a"}', "it needs a `check`"),
        ('{"task": 1, "check": "true"}', "`task` is no text"),
        ('{"task": "a", "check": "true", "path": "/gone.html"}', "the app has no page /gone.html"),
        ('{"task": "a", "check": "true", "path": "/%00"}', "the app has no page /%00"),
        ('{"task": "a", "check": "true", "path": "//example.com/"}', "its `path` //example.com/ leaves the app"),
    ],
)
def test_a_line_that_is_no_task_is_set_aside_and_told(kept, line, why):
    file = kept / "some.jsonl"
    (kept / "index.html").touch()
    file.write_text(f'{{"task": "a", "check": "true"}}\n{line}\n')
    read = read_tasks(file, has_check=False, site=str(kept))
    assert (len(read.tasks), read.rejected) == (1, {2: why})
    file.write_text(line)
    with pytest.raises(ConfigError, match="no line is a task"):
        read_tasks(file, has_check=False, site=str(kept))


def test_a_task_that_was_read_before_is_set_aside(kept):
    """A separator of lines inside of a text ends no line."""
    file = kept / "twice.jsonl"
    for name in ("index.html", "b.html"):
        (kept / name).touch()
    file.write_text('{"task": "a\u2028b", "check": "true"}\n' * 2 + '{"task": "a", "path": "/b.html", "check": "true"}\n')
    read = read_tasks(file, has_check=False, site=str(kept))
    assert (len(read.tasks), read.rejected) == (2, {2: "an earlier line is the same task"})


def test_problems_that_read_alike_are_items_of_their_own(kept):
    """The page has one problem, which a seed places elsewhere."""
    environment = load_environment("gui", {"pages": ["click-test"], "share": ALL_TRAIN, "seconds": 60.0})
    with closing(environment.browser):
        items = environment.items("train", 3, 0)
        assert len({item.identity for item in items}) == 1
        assert len({item.item_id for item in items}) == 3
        assert environment.items("train", 2, 0) == items[:2]


def test_a_site_that_is_not_there_is_refused_at_once(site):
    with pytest.raises(ConfigError, match="neither a folder nor a URL"):
        site(site="/no/such/folder")
    with pytest.raises(NotFoundError, match="no such file"):
        site(tasks="/no/such/file.jsonl")


@pytest.mark.long
def test_a_check_in_python_is_given_the_page(run, site, kept):
    (kept / "judge.py").write_text(
        "def judge(page):\n    return 0.5 if 'Shop' in page['text'] and page['task'] == 'Look.' else 0\n"
    )
    running = run(site({"task": "Look."}, check=f"{kept / 'judge.py'}:judge"))
    assert running.outcome().value == 0.5


@pytest.mark.long
def test_a_check_that_fails_is_an_error_of_its_row(run, site):
    running = run(site({"task": "Look.", "check": "nowhere.value"}))
    assert "nowhere is not defined" in running.end().error
    running = run(site({"task": "Look.", "check": "'yes'"}))
    assert "true, false or a number is wanted" in running.end().error


WORKER = """
import json, sys
from clawpipe.play.environments.hosted import HostedEnvironment
world = HostedEnvironment("gui", json.loads(sys.argv[1]), 120.0)
episodes = [world.start(item, 0) for item in world.items("train", 2, 0)]
print("open", flush=True)
sys.stdin.read()
"""


@pytest.mark.long
def test_no_browser_is_left_when_the_worker_is_killed(home):
    options = {"pages": ["login-user"], "share": ALL_TRAIN, "seconds": 60.0}
    with subprocess.Popen(
        [sys.executable, "-c", WORKER, json.dumps(options)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as worker:
        assert worker.stdout.readline() == b"open\n"
        below = [psutil.Process(process) for process in descendants(worker.pid)]
        assert sum(is_chromium(one.pid) for one in below) == 1  # one for both episodes
        worker.kill()
    assert psutil.wait_procs(below, timeout=60)[1] == []
