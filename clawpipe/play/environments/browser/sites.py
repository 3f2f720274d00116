"""Tasks on a web app of the user's own, from a file: one JSON object a line.

{"task": "Add milk to the list.", "path": "/list.html", "check": "document.querySelector('#list').innerText.includes('milk')"}

`check` is JavaScript, and gives true, false or a reward in [0, 1] when the episode ends. `slice` and `identity` are as in the
environment `prompts`.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urljoin, urlsplit

from clawpipe.errors import ConfigError, NotFoundError
from clawpipe.play.environments.browser.scene import Scene, file_of, origin_of

_ORIGIN = "http://site.localhost"
_FIELDS = {"task": "", "path": "/", "check": "", "slice": "all", "identity": ""}


@dataclass(frozen=True)
class SiteTask:
    """One line of the file."""

    task: str
    path: str
    check: str
    slice: str
    identity: str


@dataclass(frozen=True)
class SiteTasks:
    """The tasks of a file, and why other lines are none, by line number."""

    tasks: tuple[SiteTask, ...]
    rejected: dict[int, str] = field(default_factory=dict[int, str])


def read_tasks(file: Path, has_check: bool, site: str) -> SiteTasks:
    """Read a file of tasks; a line that is none is set aside with its reason.

    Args:
        has_check: whether lines may leave their check out.
        site: the app, a folder or a URL.

    Raises:
        NotFoundError: no such file.
        ConfigError: no line is a task, or there is no such app.
    """
    app = scene_of(site, "/")
    if not file.is_file():
        raise NotFoundError("no such file", str(file), "environment.options.tasks names a file of tasks")
    tasks, rejected = list[SiteTask](), dict[int, str]()
    for number, line in enumerate(file.read_bytes().splitlines(), 1):
        if line.strip():
            try:
                task = _task(json.loads(line.decode(errors="replace")), has_check)
                _require_page(app, task.path)
                if any((task.identity, task.path, task.task) == (one.identity, one.path, one.task) for one in tasks):
                    raise ValueError("an earlier line is the same task")
                tasks.append(task)
            except (ValueError, RecursionError) as error:
                rejected[number] = "no JSON" if isinstance(error, json.JSONDecodeError) else str(error)
    if not tasks:
        why = next((f"line {number}: {why}" for number, why in rejected.items()), "it is empty")
        raise ConfigError(f"no line is a task: {why}", str(file), "see docs/gui.md")
    return SiteTasks(tuple(tasks), rejected)


def _task(given: Any, has_check: bool) -> SiteTask:
    if not isinstance(given, dict):
        raise ValueError("no JSON object")
    read = {name: given.get(name, default) for name, default in _FIELDS.items()}
    if wrong := [name for name, value in read.items() if not isinstance(value, str)]:
        raise ValueError(f"`{wrong[0]}` is no text")
    if not read["task"].strip():
        raise ValueError("it needs a `task`")
    if any("\ud800" <= character <= "\udfff" for character in "".join(read.values())):
        raise ValueError("a text of it has half a surrogate pair")
    if not read["check"].strip() and not has_check:
        raise ValueError("it needs a `check`")
    return SiteTask(**read | {"identity": read["identity"] or f"{read['path']} {read['task']}"})


def _require_page(app: Scene, path: str) -> None:
    """Raise ValueError where a task's page is not in the app."""
    url = urljoin(app.url, path)
    if origin_of(url) != origin_of(app.url):
        raise ValueError(f"its `path` {path} leaves the app")
    if app.folder and not file_of(Path(app.folder), url):
        raise ValueError(f"the app has no page {path}")


def scene_of(site: str, path: str) -> Scene:
    """Return a page of an app, which is a folder or a URL.

    Raises:
        ConfigError: it is neither.
    """
    if urlsplit(site).scheme in ("http", "https"):
        return Scene(urljoin(site, path), travels=True)
    folder = Path(site).expanduser()
    if not site or not folder.is_dir():
        raise ConfigError(f"{site!r} is neither a folder nor a URL", "environment.options.site", "name where your app is")
    return Scene(urljoin(_ORIGIN, path), str(folder.resolve()), travels=True)
