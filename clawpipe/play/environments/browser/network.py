"""What a page reaches: the files of its site, its own origin, loopback, and nothing else."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

from playwright.async_api import Error, Route

from clawpipe.play.environments.browser.scene import Scene, file_of, origin_of

_LOOPBACK = {"127.0.0.1", "localhost", "::1"}


async def serve(route: Route, scene: Scene) -> None:
    """Answer a request of a page: from the folder, or let it through to loopback and the page's own origin."""
    url, own = route.request.url, origin_of(scene.url)
    with suppress(Error):
        if scene.folder and origin_of(url) == own:
            await _serve_file(route, Path(scene.folder))
        elif origin_of(url) == own or urlsplit(url).hostname in _LOOPBACK:
            await route.continue_()
        elif route.request.is_navigation_request():
            await route.fulfill(status=204)  # the browser stays where it is
        else:
            await route.abort("blockedbyclient")


async def _serve_file(route: Route, folder: Path) -> None:
    if file := file_of(folder, route.request.url):
        await route.fulfill(path=file)
    else:
        await route.fulfill(status=404, body="not found")
