"""Tabs of a browser, as an environment asks for them."""

from __future__ import annotations

import os
import socket
from contextlib import suppress
from typing import Any, Self

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.core.basics.words import whole_characters
from clawpipe.play.environments.browser.keeper import END, TAB, fork_keeper
from clawpipe.play.environments.browser.scene import PageError, Scene, View
from clawpipe.play.environments.calling import CallTimeoutError, EndedError
from clawpipe.play.environments.socket_lines import Lines

_TO_START = 60.0  # seconds for Chromium, on a busy machine
_GRACE = 5.0  # seconds beyond a request's own


class Browser:
    """One Chromium, which starts with the first tab. Forks of this process may open tabs at once.

    Args:
        program: Chromium.

    Attributes:
        process: id of the one that holds Chromium.
    """

    def __init__(self, program: str) -> None:
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._maker, self.process = os.getpid(), fork_keeper(theirs, program, self._control)

    def open(self, scene: Scene) -> BrowserTab:
        """Return a new tab with a page.

        Raises:
            PageError: the browser or the page cannot be opened.
        """
        ours, theirs = socket.socketpair()
        with theirs:
            socket.send_fds(self._control, [TAB], [theirs.fileno()])
        return BrowserTab(Lines(ours), scene)

    def close(self) -> None:
        """End Chromium; in a fork, only leave it."""
        if os.getpid() == self._maker:
            with suppress(OSError):  # it has ended
                self._control.send(END)
                os.waitpid(self.process, 0)
        self._control.close()


class BrowserTab:
    """A page that is open.

    Attributes:
        view: what it showed last.
    """

    def __init__(self, lines: Lines, scene: Scene) -> None:
        self._lines, self._seconds = lines, scene.seconds + _GRACE
        try:
            self.view = self._seen("open", _TO_START + self._seconds, scene=scene.as_dict())
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def begin(self, argument: Any) -> View:
        """Begin an episode on the page, as the scene says. Raises PageError."""
        self.view = self._seen("begin", self._seconds, argument=argument)
        return self.view

    def act(self, name: str, arguments: JsonObject) -> View:
        """Do something. Raises PageError."""
        self.view = self._seen("act", self._seconds, name=name, arguments=arguments)
        return self.view

    def tell(self, function: str) -> Any:
        """Return what a JavaScript function or expression gives on the page. Raises PageError."""
        return self._asked("tell", self._seconds, function=function)

    def close(self) -> None:
        self._lines.close()

    def _seen(self, call: str, seconds: float, **arguments: Any) -> View:
        told: JsonObject = self._asked(call, seconds, **arguments)
        for name, one in told.items():  # a page's script may write half a character, which could not be stored
            told[name] = whole_characters(one) if isinstance(one, str) else one
        return View(**told)

    def _asked(self, call: str, seconds: float, **arguments: Any) -> Any:
        try:
            self._lines.write({"call": call} | arguments, seconds)
            answer = self._lines.read(seconds)
        except (CallTimeoutError, EndedError):
            raise PageError("the browser has ended") from None
        if "error" in answer:
            raise PageError(answer["error"])
        return answer["ok"]
