"""`clawpipe report`: the page of one night, or one page over all nights."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from clawpipe.cli.output import JsonFlag, print_json
from clawpipe.core.basics.json_types import JsonObject
from clawpipe.errors import ConfigError, NotFoundError

if TYPE_CHECKING:
    from clawpipe.core.store.home import Home


def report(
    night: Annotated[str | None, typer.Option("--night", help="A night's id; by default the latest that has a report.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="Write one page over all nights of the home.")] = False,
    json_output: JsonFlag = False,
) -> None:
    """Print the path of a night's report, an HTML page that needs no network.

    With --all, write one page over all nights: held-out and benchmark success with intervals, reward, KL, lengths, rows by reason,
    minutes and tokens by stage, verdicts, and links to the reports. `clawpipe up` serves it, too.
    """
    from clawpipe.core.store.home import Home
    from clawpipe.record.nights.files import list_nights

    if night and everything:
        raise ConfigError("--all is the page over all nights", "--night", "leave one of them out")
    home = Home.from_env()
    nights = list_nights(home)
    if not nights:
        raise NotFoundError("no night has run here", str(home.root), "start one: clawpipe run --config configs/demo.yaml")
    found = _all(home) if everything else _one(home, night or _newest(home, nights[-1]))
    if json_output:
        print_json(found)
    else:
        typer.echo(found["file"])


def _all(home: Home) -> JsonObject:
    from clawpipe.record.reporting.trend import write_page

    path, nights = write_page(home)
    return {"file": str(path), "nights": nights}


def _newest(home: Home, latest: str) -> str:
    """Return the newest night with a report, and say so if later ones have none yet."""
    from clawpipe.record.nights.files import newest_reported

    found = newest_reported(home) or latest
    if found != latest:
        typer.echo(f"the report of {found}: {latest} has none yet, one is written at its end", err=True)
    return found


def _one(home: Home, night: str) -> JsonObject:
    from clawpipe.record.nights.files import REPORT, run_dir

    path = run_dir(home, night) / REPORT
    if not path.exists():
        raise NotFoundError(
            f"the night {night!r} has no report: one is written at its end", str(path), "`clawpipe status` shows it"
        )
    return {"file": str(path), "night": night}
