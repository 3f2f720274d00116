"""MiniWoB's pages, from its wheel: small tasks in a window of 160 by 210 pixels, which say themselves how an episode went.

A page makes its problem from a seed. Its instruction, its time limit and its reward are read as the page gives them: `raw`, without
the deduction for time, since the time of a page counts actions here.
"""

from __future__ import annotations

from difflib import get_close_matches
from functools import cache
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from clawpipe.errors import ConfigError
from clawpipe.play.environments.browser.scene import Scene

_ORIGIN = "http://miniwob.localhost"
_HIDDEN = "#reward-display, #click-canvas, #sync-task-cover { display: none !important }"  # the frame around the task
_BEGIN = f"""seed => {{
    document.head.appendChild(document.createElement('style')).textContent = '{_HIDDEN}';
    Math.seedrandom(seed);
    core.startEpisodeReal();
    const said = core.getUtterance();
    return typeof said === 'string' ? said : said.utterance;
}}"""
_STATE = "() => WOB_DONE_GLOBAL ? {reward: WOB_RAW_REWARD_GLOBAL, reason: WOB_REWARD_REASON} : null"


def scene_of(name: str) -> Scene:
    """Return the page of this name.

    Raises:
        ConfigError: there is none.
    """
    if name not in page_names():
        near = ", ".join(get_close_matches(name, page_names(), cutoff=0.3) or page_names()[:3])
        raise ConfigError(
            f"MiniWoB has no page {name!r}", "environment.options.pages", f"{len(page_names())} are there, e.g. {near}"
        )
    path = f"{name.replace('.', '/')}/wrapper.html" if "." in name else f"miniwob/{name}.html"
    return Scene(f"{_ORIGIN}/{path}", str(_folder()), _BEGIN, "WOB_TASK_READY", _STATE, 160, 210)


@cache
def page_names() -> tuple[str, ...]:
    """Return the names of all pages, sorted: those of the folder miniwob, and of flight as `flight.AA`.

    Raises:
        ConfigError: the package is not installed.
    """
    pages = {file.stem for file in (_folder() / "miniwob").glob("*.html")}
    return tuple(sorted(pages | {f"flight.{file.parent.name}" for file in (_folder() / "flight").glob("*/wrapper.html")}))


@cache
def _folder() -> Path:
    try:
        return Path(str(distribution("miniwob").locate_file("miniwob/html")))
    except PackageNotFoundError:
        fix = "pip install --no-deps miniwob, or name an app of your own with `tasks` and `site`"
        raise ConfigError("MiniWoB's pages are not installed", "environment.options.pages", fix) from None
