"""`clawpipe gc`: remove unreferenced artifacts from the store."""

from __future__ import annotations

from typing import Annotated

import typer

from clawpipe.cli.output import JsonFlag, print_json

KeepOption = Annotated[
    int | None,
    typer.Option(
        "--keep-nights",
        min=0,
        metavar="N",
        help="Keep what the latest N nights made, and what commands such as `rescore` "
        "made since the first of them; by default all of it.",
    ),
]

VersionsOption = Annotated[
    int | None,
    typer.Option(
        "--keep-versions",
        min=1,
        metavar="N",
        help="Keep the files of each model's latest N versions, and the checkpoints of its latest N MLflow runs; by default all. "
        "Versions with an alias, and those that a rollback can reach, stay.",
    ),
]

ReportsOption = Annotated[
    int | None,
    typer.Option("--keep-reports", min=0, metavar="N", help="Keep report and logs of the latest N nights; by default of all."),
]

RemoteOption = Annotated[
    bool,
    typer.Option(
        "--remote",
        help="Remove from $CLAWPIPE_STORE as well, not only from this home's copy of it. Only this home's nights, registry and "
        "imports count: data that only another home refers to are lost. Use it where all of them are.",
    ),
]


def gc(
    keep_nights: KeepOption = None,
    keep_versions: VersionsOption = None,
    keep_reports: ReportsOption = None,
    compact: Annotated[bool, typer.Option("--compact", help="First join the small datasets of ingest runs.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be removed.")] = False,
    remote: RemoteOption = False,
    json_output: JsonFlag = False,
) -> None:
    """Remove artifacts that no kept night, registered model, import or command of yours refers to, and leftovers of killed
    processes.

    It refuses to run during a night; try again later. Data less than an hour old stay.
    """
    from clawpipe.core.store.home import Home
    from clawpipe.data.ingest.compaction import compact_imports
    from clawpipe.record.removal.collect import collect
    from flows.datasets import used_by_models

    home = Home.from_env()
    joined = compact_imports(home, used_by_models(home), dry_run=dry_run) if compact else []
    found = collect(home, keep_nights, dry_run=dry_run, remote=remote, keep_versions=keep_versions, keep_reports=keep_reports)
    if json_output:
        print_json(found.model_dump(mode="json") | {"joined": [entry.model_dump() for entry in joined]})
        return
    for entry in joined:
        into = f"are {entry.into}" if entry.into else "would be one"
        typer.echo(f"{len(entry.digests)} imports of {entry.name} ({entry.rows} rows) {into}")
    would = "would be removed" if dry_run else "removed"
    for entry in found.artifacts:
        typer.echo(f"{entry.name} {entry.digest[:12]}  {entry.bytes} bytes")
    typer.echo(f"{len(found.artifacts)} artifacts {would} ({found.bytes} bytes), {found.kept} stay for {len(found.nights)} nights")
    for entry in found.remote:
        typer.echo(f"{entry.name} {entry.digest[:12]}  {entry.bytes} bytes  (shared store)")
    if remote:
        typer.echo(
            f"{len(found.remote)} artifacts of the shared store {would} ({sum(entry.bytes for entry in found.remote)} bytes)"
        )
    for one in found.files:
        typer.echo(f"files of {one.of} (night {one.night})  {one.bytes} bytes")
    if keep_versions is not None:
        typer.echo(f"files of {len(found.files)} versions and runs {would} ({sum(one.bytes for one in found.files)} bytes)")
    if keep_reports is not None:
        typer.echo(f"reports and logs of {len(found.reports)} nights {would}")
    if found.screenshots:
        typer.echo(f"{len(found.screenshots)} screenshots {would}: no stored row names them")
    if found.work:
        typer.echo(f"work/ {would}: no night is unfinished")
    if dry_run and found.stays:
        typer.echo("never collected:")
        for one in found.stays:
            typer.echo(f"  {one.what}: {one.bytes} bytes; {one.why}")
