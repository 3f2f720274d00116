"""`clawpipe status`: show past and running nights."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated

import typer

from clawpipe.cli.output import JsonFlag, print_at_80, print_json, printable, tell
from clawpipe.errors import ClawpipeError, NotFoundError

if TYPE_CHECKING:
    from clawpipe.core.store.home import Home
    from clawpipe.record.nights.status import NightStatus


def status(
    night: Annotated[str | None, typer.Option("--night", help="A night's id; by default the latest.")] = None,
    limit: Annotated[int, typer.Option("--limit", "-l", min=1, help="Most nights in the table of the latest ones.")] = 20,
    every_model: Annotated[
        bool, typer.Option("--all", help="One line for each model: last verdict, what runs, when it is due.")
    ] = False,
    json_output: JsonFlag = False,
) -> None:
    """Show a past or running night: steps, held-out figures, verdict, model, and the evidence left."""
    from clawpipe.core.store.home import Home
    from clawpipe.record.nights.conclude import count_evidence_in
    from clawpipe.record.nights.files import list_nights
    from clawpipe.record.nights.status import read_status

    home = Home.from_env()
    if every_model:
        _print_models(home, json_output)
        return
    nights = list_nights(home)
    if not nights:
        due = "; ".join(_schedule(home))
        raise NotFoundError("no night has run here", str(home.root), due or "start one: clawpipe run --config configs/demo.yaml")
    found = count_evidence_in(home, read_status(home, night or nights[-1]))
    if json_output:
        print_json(found.model_dump(mode="json"))
        return
    print_status(found, home)
    if night is None and len(nights) > 1:
        from clawpipe.record.reporting.summary import nights_table

        print_at_80(nights_table(list(_readable(home, nights[-limit:]))))
        if len(nights) > limit:
            typer.echo(f"{len(nights) - limit} earlier nights: --limit {len(nights)} shows them")
    for line in _schedule(home):
        typer.echo(f"schedule: {line}")


def _print_models(home: Home, json_output: bool) -> None:
    from clawpipe.record.reporting.models import model_statuses, models_table

    found = model_statuses(home, _next_nights(home))
    if json_output:
        print_json({"models": [one.model_dump(mode="json") for one in found]})
    elif found:
        print_at_80(models_table(found))
    else:
        raise NotFoundError("no night has run here", str(home.root), "start one: clawpipe run --config configs/demo.yaml")


def _next_nights(home: Home) -> dict[str, str]:
    """Return when the next night of each model is due; nothing while `clawpipe up` does not run, or does not answer."""
    from clawpipe.core.services.prefect_server import announced_url
    from clawpipe.core.services.schedules import deployed

    url = announced_url(home)
    with suppress(ClawpipeError):
        found = deployed(home, url) if url else []
        return {one.model: f"{one.next_run:%Y-%m-%d %H:%M}" for one in found if one.model and one.next_run}
    return {}


def _schedule(home: Home) -> list[str]:
    """Return when each deployment of `clawpipe up` runs next, and how it last ended; nothing while it is not up."""
    from clawpipe.core.services.prefect_server import announced_url
    from clawpipe.core.services.schedules import deployed

    url = announced_url(home)
    try:
        return [str(one) for one in deployed(home, url)] if url else []
    except ClawpipeError as error:
        return [str(error)]


def _readable(home: Home, nights: list[str]) -> Iterator[NightStatus]:
    """Yield the statuses of nights; errors of damaged ones are printed, and the others are shown."""
    from clawpipe.record.nights.status import read_status

    for night in nights:
        try:
            yield read_status(home, night)
        except ClawpipeError as error:
            tell(error, as_json=False)


def print_status(status: NightStatus, home: Home) -> None:
    """Print the night, and last the address of its lineage on one line, so that a terminal makes a link of it."""
    from clawpipe.record.reporting.summary import summary

    print_at_80(summary(status))
    if page := status.lineage_page:
        where, address = _address(page, home)
        typer.echo(f"lineage as a graph{where}\n  {printable(address)}")


def _address(page: str, home: Home) -> tuple[str, str]:
    """Return where to find a Prefect page, and its address; a path is a page of the home's server."""
    from clawpipe.core.services.prefect_server import announced_url

    if not page.startswith("/"):
        return "", page
    url = announced_url(home)
    return ("", f"{url.removesuffix('/api')}{page}") if url else (", on Prefect's pages while `clawpipe up` runs", page)
