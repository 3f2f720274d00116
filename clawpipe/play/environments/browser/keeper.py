"""The process that holds the browser: one Chromium for all episodes, with a context for each of them.

It is a fork of the process that makes the environment, and starts Chromium when the first page is asked for. A message on its
socket, the control, passes the socket of another tab along; on that, requests and answers are JSON lines. When a tab's socket
ends, its context is closed. When the maker says so, or the control ends, as a kill of all who hold it does, so do Chromium and this
process.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
from contextlib import suppress
from typing import TYPE_CHECKING, NoReturn

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.play.environments.browser.scene import PageError, Scene
from clawpipe.play.environments.process_tree import become_subreaper

if TYPE_CHECKING:
    from playwright.async_api import Browser as Chromium
    from playwright.async_api import Playwright

    from clawpipe.play.environments.browser.tab import Tab

TAB, END = b"t", b"e"  # messages on the control
_LONGEST_REQUEST = 16 << 20  # bytes
_TO_CLOSE = 5.0  # seconds
_ARGUMENTS = ("--force-webrtc-ip-handling-policy=disable_non_proxied_udp", "--disable-background-networking", "--no-pings")


def fork_keeper(control: socket.socket, program: str, others: socket.socket) -> int:
    """Start the process, and return its id.

    Args:
        control: where sockets of tabs are passed along.
        program: Chromium.
        others: the other end of the control, which this process must not hold: it would never end.
    """
    process = os.fork()
    if not process:
        others.close()
        _become_keeper(control, program)
    return process


def _become_keeper(control: socket.socket, program: str) -> NoReturn:
    try:
        become_subreaper()  # what Chromium has started stays below this process
        asyncio.run(_Keeper(control, program).run())
    finally:
        os._exit(0)


class _Keeper:
    def __init__(self, control: socket.socket, program: str) -> None:
        self._control, self._program = control, program
        self._starting, self._over = asyncio.Lock(), asyncio.Event()
        self._tabs: set[asyncio.Task[None]] = set()
        self._playwright: Playwright | None = None
        self._chromium: Chromium | None = None

    async def run(self) -> None:
        """Serve tabs until the control ends."""
        asyncio.get_running_loop().add_reader(self._control, self._accept)
        await self._over.wait()
        with suppress(Exception):  # of a browser that is gone, or hangs: its pipe ends with this process
            async with asyncio.timeout(_TO_CLOSE):
                await self._stop()

    def _accept(self) -> None:
        message, passed, *_ = socket.recv_fds(self._control, 1, 1)
        if message != TAB:
            asyncio.get_running_loop().remove_reader(self._control)
            self._over.set()
            return
        task = asyncio.ensure_future(self._serve(socket.socket(fileno=passed[0])))
        self._tabs.add(task)
        task.add_done_callback(self._tabs.discard)

    async def _serve(self, connection: socket.socket) -> None:
        reader, writer = await asyncio.open_connection(sock=connection, limit=_LONGEST_REQUEST)
        tabs: list[Tab] = []
        with suppress(ConnectionError, ValueError):
            try:
                while line := await reader.readline():
                    writer.write(json.dumps(await self._answered(tabs, json.loads(line))).encode() + b"\n")
                    await writer.drain()
            finally:
                writer.close()
                for tab in tabs:
                    await tab.close()

    async def _answered(self, tabs: list[Tab], request: JsonObject) -> JsonObject:
        try:
            if request["call"] == "open":
                for tab in tabs:
                    await tab.close()
                tabs[:] = [await self._opened(Scene(**request["scene"]))]
            return {"ok": await tabs[0].answer(request)}
        except PageError as error:
            return {"error": str(error)}

    async def _opened(self, scene: Scene) -> Tab:
        from clawpipe.play.environments.browser.tab import Tab

        async with self._starting:  # one that has died is started anew, for the episodes to come
            if self._chromium is None or not self._chromium.is_connected():
                self._chromium = await self._launched()
        return await Tab.opened(self._chromium, scene)

    async def _launched(self) -> Chromium:
        from playwright.async_api import Error, async_playwright

        try:
            self._playwright = self._playwright or await async_playwright().start()
            return await self._playwright.chromium.launch(
                executable_path=self._program,
                args=_ARGUMENTS,
                chromium_sandbox=os.geteuid() != 0,  # which Chromium refuses to root
            )
        except Error as error:
            raise PageError(f"the browser does not start: {str(error).strip().splitlines()[0]}") from None

    async def _stop(self) -> None:
        if self._chromium is not None:
            await self._chromium.close()
        if self._playwright is not None:
            await self._playwright.stop()
