"""A tab: one page in a browser context of its own, with a clock of its own, for one episode.

The page's clock stands still while the policy thinks, and goes on by a second for each action. So what a page does in time is the
same in every run, and on any machine; a page's own time limit counts actions.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import Awaitable
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, Self, TypeVar
from urllib.parse import urljoin, urlsplit

from playwright.async_api import Browser, BrowserContext, Dialog, Download, Error, Page
from playwright.async_api import TimeoutError as TooSlowError

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.play.environments.browser.network import serve
from clawpipe.play.environments.browser.outline import Outline
from clawpipe.play.environments.browser.scene import PageError, Scene, View, origin_of

T = TypeVar("T")
_BEGIN = 1704099600000  # 2024-01-01 09:00 UTC, in ms
_STEP_MS = 1000
_PATIENCE = 0.3  # of a request's seconds: how long an element may take until it can be acted on
_READY_TRIES = 50
_NOWHERE = "http://127.0.0.1:9"  # a proxy that nobody offers: for what requests do not show to a route, such as web sockets
_SCROLLED = """(element, sign) => {
    for (let one = element; one; one = one.parentElement)
        if (one.scrollHeight > one.clientHeight && getComputedStyle(one).overflowY !== 'visible')
            return one.scrollBy(0, sign * 0.8 * one.clientHeight);
    scrollBy(0, sign * 0.8 * innerHeight);
}"""


class RefusedError(Exception):
    """An action that cannot be done, which the policy is told."""


class Tab:
    """One page and what happens on it."""

    def __init__(self, browser: Browser, context: BrowserContext, page: Page, scene: Scene) -> None:
        self._browser, self._context, self._page, self._scene = browser, context, page, scene
        self._origin = origin_of(scene.url)
        self._outline, self._instruction = Outline("", ()), ""
        self._ended = self._broken = ""
        self._loading: set[object] = set()
        self._watch()

    @classmethod
    async def opened(cls, browser: Browser, scene: Scene) -> Self:
        """Return a tab in a context of its own.

        Raises:
            PageError: the browser has ended.
        """
        try:
            async with asyncio.timeout(scene.seconds):
                context = await browser.new_context(
                    viewport={"width": scene.width, "height": scene.height},
                    proxy={"server": _NOWHERE, "bypass": f"127.0.0.1,localhost,[::1],{urlsplit(scene.url).hostname}"},
                    accept_downloads=False,
                    service_workers="block",
                )
                await context.clock.install(time=_BEGIN)
                tab = cls(browser, context, page := await context.new_page(), scene)
                windows = await context.new_cdp_session(page)
                windows.on("Page.windowOpen", tab._note_window)
                await windows.send("Page.enable")
                return tab
        except (Error, TimeoutError):
            raise PageError("the browser has ended") from None

    async def answer(self, request: JsonObject) -> Any:
        """Return what a request asks for.

        Raises:
            PageError: see there.
        """
        match request:
            case {"call": "open"}:
                return asdict(await self._within(self._open()))
            case {"call": "begin", "argument": argument}:
                return asdict(await self._within(self._begin(argument)))
            case {"call": "act", "name": name, "arguments": arguments}:
                return asdict(await self._within(self._act(name, arguments)))
            case {"call": "look"}:
                return asdict(await self._within(self._look()))
            case {"call": "tell", "function": function}:
                return await self._within(self._page.evaluate(function))
        raise PageError(f"no such request: {request['call']}")

    async def close(self) -> None:
        """Close the context; a page that hangs ends with it."""
        with suppress(Error, TimeoutError):
            await asyncio.wait_for(self._context.close(), self._scene.seconds)

    async def _within(self, work: Awaitable[T]) -> T:
        try:
            return await asyncio.wait_for(work, self._scene.seconds)
        except TimeoutError:
            self._broken = self._broken or f"the page did not answer within {self._scene.seconds:g} s"
        except Error as error:
            why = f"the page cannot be used: {first_line(error)}" if self._browser.is_connected() else "the browser has ended"
            self._broken = self._broken or why
        raise PageError(self._broken)

    async def _open(self) -> View:
        await self._context.route("**/*", lambda route: serve(route, self._scene))
        await self._context.clock.pause_at(_BEGIN + _STEP_MS)
        try:
            answer = await self._page.goto(self._scene.url)
        except Error as error:
            raise PageError(f"{self._scene.url} cannot be opened: {first_line(error)}") from None
        if answer is not None and answer.status >= 400:
            raise PageError(f"{self._scene.url} cannot be opened: status {answer.status}")
        return View("") if self._scene.begin else await self._look()

    async def _begin(self, argument: Any) -> View:
        """Begin an episode on the page that is open; with another argument, another one."""
        told = await self._page.evaluate(self._scene.begin, argument)
        for _ in range(_READY_TRIES):
            if await self._page.evaluate(self._scene.ready):
                break
            await self._advance(_STEP_MS // 10)
        self._instruction = " ".join(str(told or "").split())
        return await self._look()

    async def _act(self, name: str, arguments: JsonObject) -> View:
        try:
            await self._done(name, arguments)
        except RefusedError as error:
            await self._page.evaluate("0")  # of a page that hangs there is no answer
            return View(f"error: {error}", ended=self._ended)
        await self._settle()
        return await self._look()

    async def _done(self, name: str, arguments: JsonObject) -> None:
        patience = self._scene.seconds * _PATIENCE * 1000
        try:
            match name:
                case "click":
                    await self._element(arguments).click(timeout=patience)
                case "type":
                    await self._element(arguments).fill(str(arguments.get("text", "")), timeout=patience)
                case "select":
                    await self._element(arguments).select_option(label=str(arguments.get("option", "")), timeout=patience)
                case "press":
                    await self._page.keyboard.press(str(arguments.get("key", "")))
                case "scroll":
                    sign = -1 if arguments.get("direction") == "up" else 1
                    await self._element(arguments).evaluate(_SCROLLED, sign, timeout=patience)
                case "go" if self._scene.travels:
                    await self._go(str(arguments.get("url", "")))
                case _:
                    raise RefusedError(f"no tool {name!r}")
        except Error as error:
            if self._broken or self._page.is_closed() or not self._browser.is_connected():
                raise
            if not self._ended:  # a dialog or a new window may have been in the way
                raise RefusedError(_why(name, error)) from None

    def _element(self, arguments: JsonObject) -> Any:
        number = str(arguments.get("id", ""))
        if not number.isdecimal() or not 1 <= int(number) <= len(self._outline.references):
            raise RefusedError(f"no element {number!r} on the page")
        return self._page.locator(f"aria-ref={self._outline.references[int(number) - 1]}")

    async def _go(self, url: str) -> None:
        there = urljoin(self._page.url, url)
        if origin_of(there) != self._origin:
            raise RefusedError(f"only pages of {self._origin} can be opened")
        await self._page.goto(there)

    async def _settle(self) -> None:
        """Wait for what an action has set going: a second of the page's time, and whatever it loads."""
        await self._quiet()
        await self._advance(_STEP_MS)
        await self._quiet()

    async def _advance(self, milliseconds: int) -> None:
        with suppress(Error):  # a page that is left meanwhile
            await self._page.clock.run_for(milliseconds)

    async def _quiet(self) -> None:
        end = asyncio.get_running_loop().time() + self._scene.seconds * _PATIENCE
        while self._loading and asyncio.get_running_loop().time() < end:
            await asyncio.sleep(0.01)
        with suppress(TooSlowError):
            await self._page.wait_for_load_state("load", timeout=self._scene.seconds * _PATIENCE * 1000)

    async def _look(self) -> View:
        state = await self._page.evaluate(self._scene.state) if self._scene.state else None
        snapshot = await self._page.aria_snapshot(mode="ai")
        self._outline = Outline.of(snapshot, self._scene.characters, self._instruction)
        return View(self._outline.text, await self._screenshot(), self._instruction, self._ended, state)

    async def _screenshot(self) -> str | None:
        if not self._scene.screenshots:
            return None
        picture = await self._page.screenshot(animations="disabled", caret="hide")
        digest = hashlib.sha256(picture).hexdigest()
        keep(Path(self._scene.screenshots, digest[:2], f"{digest}.png"), picture)
        return digest

    def _watch(self) -> None:
        """Take note of what ends an episode, and of requests that are under way."""
        page = self._page
        page.on("dialog", self._dialog)
        page.on("download", self._download)
        page.on("crash", lambda _: self._break("the page crashed"))
        page.on("request", lambda request: self._loading.add(request))
        for ended in ("requestfinished", "requestfailed"):
            page.on(ended, lambda request: self._loading.discard(request))
        self._context.on("page", self._window)

    def _break(self, why: str) -> None:
        self._broken = self._broken or why

    async def _dialog(self, dialog: Dialog) -> None:
        self._ended = self._ended or f"the page opened a dialog: {dialog.message[:80]}"
        with suppress(Error):
            await dialog.dismiss()

    async def _download(self, download: Download) -> None:
        self._ended = self._ended or f"the page began a download: {download.suggested_filename[:80]}"
        with suppress(Error):
            await download.cancel()

    def _note_window(self, told: JsonObject) -> None:
        """Take note of a new window when it is opened: Playwright tells of it when it has loaded, which may be after the look."""
        self._ended = self._ended or f"the page opened a new window: {told['url'][:80]}"

    async def _window(self, page: Page) -> None:
        if page is not self._page:
            with suppress(Error):
                await page.close()


def first_line(error: Exception) -> str:
    """Return what an error of Playwright says first, without the name of the method that it came from."""
    line = str(error).strip().splitlines()[0]
    return line.partition(": ")[2] or line


def _why(action: str, error: Error) -> str:
    """Return why an action failed, in a line for the policy."""
    text = str(error)
    for sign, why in _REASONS.items():
        if sign in text:
            return f"{action}: {why}"
    return f"{action}: {first_line(error)[:120]}"


_REASONS = {
    "intercepts pointer events": "another element covers it",
    "outside of the viewport": "it cannot be scrolled into view",
    "not visible": "it is not visible",
    "not enabled": "it is disabled",
    "not an <input>": "it takes no text",
    "Input of type": "it takes no text",
    "not a <select>": "it is no list of options",
    "did not find some options": "it has no such option",
    "Unknown key": "there is no such key",
    "Malformed value": "it does not take this value",
}


def keep(file: Path, content: bytes) -> None:
    """Write a file that is named by its content, unless it is there."""
    if file.exists():
        os.utime(file)  # it is in use again, so nobody collects it before its row is stored
        return
    file.parent.mkdir(parents=True, exist_ok=True)
    fresh = file.with_name(f".{file.name}.{os.getpid()}")
    fresh.write_bytes(content)
    fresh.replace(file)
