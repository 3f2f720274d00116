"""What a tab of the browser is asked to show, and what it answers."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

from clawpipe.core.basics.json_types import JsonObject


class PageError(Exception):
    """The browser has ended, or a page cannot be opened or hangs. Nobody can say how the policy did."""


@dataclass(frozen=True)
class Scene:
    """A page, and how an episode on it begins and goes on. Functions are JavaScript.

    Attributes:
        url: the page. Nothing but its origin and loopback can be reached from it.
        folder: whose files the origin serves; "": whoever listens there does.
        begin: a function that is called once the page is there, and returns what is to be done; "": none.
        ready: an expression that is true once `begin` has done its work.
        state: a function that returns null while the episode goes on, and then what the page says of it; "": none.
        width, height: of the window in CSS pixels; screenshots show it.
        travels: whether the policy may go to other pages of the origin.
        seconds: of each request.
        characters: longest text of a page.
        screenshots: the folder where they are kept; "": none are taken.
    """

    url: str
    folder: str = ""
    begin: str = ""
    ready: str = "true"
    state: str = ""
    width: int = 1024
    height: int = 768
    travels: bool = False
    seconds: float = 10.0
    characters: int = 2000
    screenshots: str = ""

    def as_dict(self) -> JsonObject:
        return asdict(self)


def origin_of(url: str) -> str:
    """Return scheme, host and port of a URL."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"


def file_of(folder: Path, url: str) -> Path | None:
    """Return the file of a folder that a URL of its origin names; None if it has none there."""
    try:
        file = (folder / unquote(urlsplit(url).path).lstrip("/")).resolve()
        file = file / "index.html" if file.is_dir() else file
        return file if file.is_relative_to(folder.resolve()) and file.is_file() else None
    except (OSError, ValueError):  # a name that is too long, or has a NUL
        return None


@dataclass(frozen=True)
class View:
    """A page after a request.

    Attributes:
        text: its outline; of an action that could not be done, a line that begins with "error: ".
        screenshot: sha256 of the picture, in hex; None where none was taken.
        instruction: what the page says is to be done, when it opens.
        ended: why the episode is over, in a line: the page opened a dialog, say; "": it goes on.
        state: what the page says of the episode that it has ended.
    """

    text: str
    screenshot: str | None = None
    instruction: str = ""
    ended: str = ""
    state: JsonObject | None = None
