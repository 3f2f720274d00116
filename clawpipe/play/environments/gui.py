"""`gui`: work on a web page in a real browser, which the policy sees as text and acts on by tools.

    user       Click button ONE.
               1 button "ONE"
               2 button "TWO"
    assistant  click(id="1")
    tool       The task has ended.

Pages are those of MiniWoB, which say themselves how an episode went, or of a web app of the user's own, with a check. Each
observation's screenshot is kept beside it, named by its digest, for policies that can see.
"""

from __future__ import annotations

import importlib.util
import json
import math
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import count as count_up
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from clawpipe.core.basics.json_types import JsonObject, Row
from clawpipe.core.conversation.messages import Message, ToolCall, ToolSpec
from clawpipe.core.store.home import Home
from clawpipe.core.store.plain_digests import sha256_plain
from clawpipe.core.user_code.extensions import ExtensionPoint, is_reference
from clawpipe.data.wire.arguments import arguments_of
from clawpipe.errors import ConfigError, DataError
from clawpipe.play.environments.base import Answer, Outcome, Reason, TaskItem, Verdict, question_item
from clawpipe.play.environments.browser import miniwob, sites
from clawpipe.play.environments.browser.client import Browser, BrowserTab
from clawpipe.play.environments.browser.scene import Scene, View
from clawpipe.play.environments.gui_tools import EXAMPLES, SYSTEM, TOOLS, TRAVEL
from clawpipe.play.environments.split import heldout, is_heldout_split, stable_hash

ENDED = "The task has ended."
CHECKS = ExtensionPoint("page check", "environment.options.check")
_EASY = ("click-button", "click-option", "click-dialog-2", "enter-text")
_REPEATS = 30  # problems in a row that are known or on the other side, after which a page repeats its own
_PAGE = """() => ({url: location.href, title: document.title, text: document.body.innerText.slice(0, 100000),
    html: document.documentElement.outerHTML.slice(0, 1000000)})"""


class GuiEnvironment:
    """Work on a web page by clicking, typing, selecting, pressing keys and scrolling.

    Args:
        pages: MiniWoB's pages by name, e.g. ["click-button", "login-user"], or "all".
        tasks: file of tasks on a web app of your own, see docs/gui.md; then no page of MiniWoB is used.
        site: the app of these tasks: a folder with its files, or the URL where it runs.
        check: of tasks without one of their own: JavaScript, or path/to/file.py:NAME, a function of what the page shows.
        share: of the tasks that are held out, in (0, 1).
        steps: actions of an episode.
        seconds: that an action may take.
        characters: longest text of a page.
        screenshots: whether screenshots are kept.
        browser: program, a Chromium.
    """

    name = "gui"
    kind = "gui"

    def __init__(
        self,
        pages: str | list[str] = list(_EASY),  # noqa: B006  # only read; shown as the default
        tasks: str = "",
        site: str = "",
        check: str = "",
        share: float = 0.5,
        steps: int = 10,
        seconds: float = 10.0,
        characters: int = 2000,
        screenshots: bool = True,
        browser: str = "chromium",
    ) -> None:
        _require(0 < share < 1, "share is between 0 and 1")
        _require(steps > 0 and seconds > 0 and characters > 0, "steps, seconds and characters are above 0")
        program = _program(browser)
        kept = str(Home.from_env().screenshots) if screenshots else ""
        self._share, self._steps = share, steps
        self._limits: JsonObject = {"seconds": seconds, "characters": characters, "screenshots": kept}
        self._check, self._site = check, site
        self._judge: Callable[..., Any] | None = CHECKS.load(check) if is_reference(check) else None
        self._tasks = sites.read_tasks(Path(tasks).expanduser(), bool(check), site) if tasks else None
        self._pages = () if tasks else _chosen(pages)
        for name in self._pages:
            miniwob.scene_of(name)
        self.browser = Browser(program)

    def tools(self) -> list[ToolSpec]:
        """Return the actions; `go` only where an app has other pages."""
        return [*TOOLS, TRAVEL] if self._tasks else list(TOOLS)

    def preamble(self) -> list[Message]:
        return [Message("system", SYSTEM), *EXAMPLES]

    def items(self, split: str, count: int, seed: int) -> list[TaskItem]:
        """Return items that alternate between the pages. Problems of one text are one identity, and on one side of the split.

        Raises:
            DataError: there are fewer.
        """
        wanted = is_heldout_split(split)
        found = list(self._own_items(split, wanted, count, seed) if self._tasks else self._drawn(split, wanted, count, seed))
        if len(found) < count:
            raise DataError(
                f"{count} {split} items wanted, {len(found)} to be had", self.name, "name more pages or tasks, or ask for fewer"
            )
        return found

    def distinct_items(self, split: str) -> int:
        """Return the number of tasks of the user's own; 0, which says nothing, for MiniWoB's pages."""
        return len(self._side(is_heldout_split(split))) if self._tasks else 0

    def warnings(self) -> list[str]:
        """Return which lines of the user's file are no tasks."""
        rejected = self._tasks.rejected if self._tasks else {}
        return [f"{len(rejected)} lines are no tasks, e.g. line {number}: {why}" for number, why in list(rejected.items())[:1]]

    def start(self, item: TaskItem) -> GuiEpisode:
        """Begin an episode.

        Raises:
            PageError: the browser or the page cannot be opened.
        """
        truth: Row = json.loads(item.truth)
        tab = self.browser.open(self._scene(truth))
        return GuiEpisode(tab, truth.get("seed"), self._ending(truth), self._steps)

    def verify(self, item: TaskItem, messages: Sequence[Message], verdict: Verdict | None) -> Outcome:
        """Return what the page or the check said: the value is the reward, 0 at least; success: it is 1."""
        if verdict is None:
            return Outcome(0.0, False, "nothing is recorded of the page", {})
        value = min(max(float(verdict.evidence["reward"]), 0.0), 1.0)
        reason = "done" if value == 1 else verdict.evidence["ended"] or "not done"
        return Outcome(value, value == 1, reason, {"reward": verdict.evidence["reward"]})

    def _scene(self, truth: Row) -> Scene:
        own = sites.scene_of(self._site, truth["path"]) if self._tasks else miniwob.scene_of(truth["page"])
        return replace(own, **self._limits)

    def _ending(self, truth: Row) -> Callable[[BrowserTab], float]:
        """Return what asks an open page for the reward."""
        if not self._tasks:
            return lambda tab: float((tab.view.state or {}).get("reward") or 0.0)
        code = truth["check"] or self._check
        if truth["check"] or self._judge is None:
            return lambda tab: _reward(tab.tell(f"() => ({code})"), code)
        judge = self._judge
        return lambda tab: _reward(judge(tab.tell(_PAGE) | {"task": truth["task"]}), code)

    def _side(self, wanted: bool) -> list[sites.SiteTask]:
        assert self._tasks
        return [task for task in self._tasks.tasks if heldout(task.identity, self._share) == wanted]

    def _own_items(self, split: str, wanted: bool, count: int, seed: int) -> Iterator[TaskItem]:
        ordered = sorted(self._side(wanted), key=lambda task: stable_hash(f"{seed}/{task.identity}"))
        for ordinal, task in enumerate(ordered[:count]):
            truth = {"path": task.path, "check": task.check, "task": task.task}
            with self.browser.open(replace(self._scene(truth), screenshots="")) as tab:
                question = f"{task.task}\n\n{tab.view.text}"
            yield question_item(self, split, ordinal, identity=task.identity, part=task.slice, question=question, truth=truth)

    def _drawn(self, split: str, wanted: bool, count: int, seed: int) -> Iterator[TaskItem]:
        """Yield problems of the pages in turn. A page that has none on this side is left out."""
        drawn, named = dict[str, list[_Problem]](), set[str]()
        for name in self._pages:
            if len(drawn) < count and (first := self._problems(name, wanted, f"{split}/{seed}", 1)):
                drawn[name] = first
        if 0 < len(drawn) < count:
            each = math.ceil(count / len(drawn))
            drawn = {name: self._problems(name, wanted, f"{split}/{seed}", each) for name in drawn}
        in_turn = (pair for row in zip(*drawn.values(), strict=True) for pair in zip(drawn, row, strict=True))
        for ordinal, (name, found) in enumerate(islice(in_turn, count)):
            truth = {"page": name, "seed": found.seed}
            item = question_item(self, split, ordinal, identity=found.identity, part=name, question=found.text, truth=truth)
            if item.item_id in named:  # which reads alike, and is placed elsewhere
                item = replace(item, item_id=sha256_plain([item.item_id, found.seed])[:16])
            named.add(item.item_id)
            yield item

    def _problems(self, name: str, wanted: bool, seed: str, count: int) -> list[_Problem]:
        """Return a page's problems on one side of the split: first different ones, then, if it has no more, those again with other
        seeds, which place them elsewhere; none if it has none."""
        found, seen, repeats = list[_Problem](), set[str](), 0
        with self.browser.open(replace(self._scene({"page": name}), screenshots="")) as tab:
            for number in count_up():
                problem = _Problem.of(name, f"{seed}/{number}", tab)
                mine = heldout(problem.identity, self._share) == wanted
                repeats = 0 if mine and problem.identity not in seen else repeats + 1
                if mine and (not repeats or repeats > _REPEATS):
                    seen.add(problem.identity)
                    found.append(problem)
                if len(found) == count or (repeats > _REPEATS and not found):
                    return found
        raise AssertionError("the numbers have ended")


class _Problem(NamedTuple):
    """What a page makes of a seed; problems that read alike have one identity."""

    identity: str
    text: str
    seed: str

    @classmethod
    def of(cls, page: str, seed: str, tab: BrowserTab) -> _Problem:
        view = tab.begin(seed)
        text = f"{view.instruction}\n\n{view.text}"
        return cls(f"{page}/{stable_hash(text):016x}", text, seed)


class GuiEpisode:
    """One page in one browser context, until it says that it is over, the policy calls nothing, or its steps are used up."""

    def __init__(self, tab: BrowserTab, seed: str | None, reward: Callable[[BrowserTab], float], steps: int) -> None:
        self._tab, self._reward, self._left = tab, reward, steps
        self._ended = ""
        if seed is not None:
            tab.begin(seed)
        self._screenshots = [tab.view.screenshot]

    def respond(self, messages: Sequence[Message]) -> Answer:
        """Do what the policy calls for, one call after another, and show the page after the last one."""
        calls = messages[-1].tool_calls
        if not calls:
            return Answer(done=True)
        results = [Message("tool", self._result(call), tool_call_id=call.id, name=call.name) for call in calls]
        self._screenshots.append(self._tab.view.screenshot)
        return Answer(results, done=bool(self._ended))

    def finish(self, reason: Reason) -> Verdict:
        """Ask the page, or the check, for the reward."""
        pictures = [] if self._screenshots[0] is None else self._screenshots
        return Verdict({"reward": self._reward(self._tab), "ended": self._ended, "screenshots": pictures})

    def close(self) -> None:
        self._tab.close()

    def _result(self, call: ToolCall) -> str:
        if self._ended:
            return f"error: {ENDED}"
        if call.malformed:
            return "error: the arguments are no JSON object"
        self._left -= 1
        view = self._tab.act(call.name, arguments_of(call))
        self._ended = _end_of(view) or ("all steps are used up" if self._left <= 0 else "")
        return f"{ENDED} {view.ended}".strip() if view.ended or view.state else view.text


def _end_of(view: View) -> str:
    if view.state:
        return str(view.state.get("reason") or "the page has ended the task")
    return view.ended


def _reward(said: Any, check: str) -> float:
    """Return what a check has said as a reward.

    Raises:
        ValueError: it is none.
    """
    if not isinstance(said, bool | int | float) or not math.isfinite(said):
        raise ValueError(f"the check {check:.60} says {said!r:.60}: true, false or a number is wanted")
    return float(said)


def _chosen(pages: str | list[str]) -> tuple[str, ...]:
    """Return the names of pages, "all" for every one."""
    named = [pages] if isinstance(pages, str) else list(pages)
    _require(bool(named) and len({*named}) == len(named), "pages names each page once")
    return miniwob.page_names() if named == ["all"] else tuple(named)


def _program(browser: str) -> str:
    program = shutil.which(Path(browser).expanduser())
    if program is None:
        raise ConfigError(f"no such program: {browser}", "environment.options.browser", "apt-get install chromium")
    if importlib.util.find_spec("playwright") is None:
        fix = "pip install 'clawpipe[gui]', or name a Python that has it: environment.python"
        raise ConfigError("playwright is not installed", "environment.name", fix)
    return program


def _require(right: bool, what: str) -> None:
    if not right:
        raise ConfigError(what, "environment.options")
