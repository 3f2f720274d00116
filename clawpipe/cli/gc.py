"""`clawpipe gc`: what nobody refers to leaves the store."""

from __future__ import annotations

from typing import Annotated

import typer

from clawpipe.cli.output import JsonFlag, print_json

KeepOption = Annotated[
    int | None,
    typer.Option(
        "--keep-nights", min=0, metavar="N", help="Keep what the latest N nights made; unless given, what any night made."
    ),
]

RemoteOption = Annotated[
    bool,
    typer.Option(
        "--remote",
        help="Remove from $CLAWPIPE_STORE as well, not only from this home's copy of it. Only this home's nights, registry and "
        "imports count: what nothing but another home refers to is lost. Use it where all of them are.",
    ),
]


def gc(
    keep_nights: KeepOption = None,
    compact: Annotated[bool, typer.Option("--compact", help="First join small datasets that runs of ingest left.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would go.")] = False,
    remote: RemoteOption = False,
    json_output: JsonFlag = False,
) -> None:
    """Remove artefacts that no kept night, registered model or import refers to, and what killed processes left.

    Nothing runs meanwhile: while a night is running, try again later. What is less than an hour old stays.
    """
    from clawpipe.ingest.memory import compact_imports
    from clawpipe.removal.collect import collect
    from clawpipe.store.home import Home

    home = Home.from_env()
    joined = compact_imports(home, dry_run=dry_run) if compact else []
    found = collect(home, keep_nights, dry_run=dry_run, remote=remote)
    if json_output:
        print_json(found.model_dump(mode="json") | {"joined": [one.model_dump() for one in joined]})
        return
    for one in joined:
        into = f"are {one.into}" if one.into else "would be one"
        typer.echo(f"{len(one.digests)} imports of {one.name} ({one.rows} rows) {into}")
    would = "would go" if dry_run else "went"
    for one in found.artefacts:
        typer.echo(f"{one.name} {one.digest[:12]}  {one.bytes} bytes")
    typer.echo(f"{len(found.artefacts)} artefacts {would} ({found.bytes} bytes), {found.kept} stay for {len(found.nights)} nights")
    for one in found.remote:
        typer.echo(f"{one.name} {one.digest[:12]}  {one.bytes} bytes  (shared store)")
    if remote:
        typer.echo(f"{len(found.remote)} artefacts of the shared store {would} ({sum(one.bytes for one in found.remote)} bytes)")
    if found.work:
        typer.echo(f"work/ {would}: no night is unfinished")
