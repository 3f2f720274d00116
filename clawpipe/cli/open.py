"""`clawpipe open`: the newest report, or the pages of `clawpipe up`, in the browser."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from clawpipe.cli.output import JsonFlag, print_json

if TYPE_CHECKING:
    from clawpipe.core.store.home import Home

PrintFlag = Annotated[bool, typer.Option("--print", help="Print the path of the page instead, for a machine without a browser.")]


def open_(print_: PrintFlag = False, json_output: JsonFlag = False) -> None:
    """Open the newest report in the browser; while `clawpipe up` runs, links to its pages, with the secret in place.

    The page of links lies in the home, and only you can read it. The secret stands in no command line and in no log.
    """
    from clawpipe.core.services.pages import pages_of, write_links
    from clawpipe.core.store.home import Home
    from clawpipe.errors import NotFoundError

    home = Home.from_env()
    report, pages = _newest_report(home), pages_of(home)
    page = write_links(home, pages, report) if pages else report
    if page is None:
        raise NotFoundError("no night has a report here", str(home.root), "start one: clawpipe run --config night.yaml")
    if json_output:
        addresses = pages.addresses() if pages else None
        print_json({"file": str(page), "pages": addresses, "report": str(report) if report else None})
    elif print_:
        typer.echo(str(page))
    elif not _shown(page):
        raise NotFoundError("no browser was found", str(page), "`clawpipe open --print` prints the page's path")


def _newest_report(home: Home) -> Path | None:
    from clawpipe.record.nights.files import REPORT, newest_reported, run_dir

    night = newest_reported(home)
    return run_dir(home, night) / REPORT if night else None


def _shown(page: Path) -> bool:
    import webbrowser

    typer.echo(f"opening {page}", err=True)
    return webbrowser.open(page.as_uri())
