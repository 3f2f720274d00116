"""`clawpipe atropos`: take what environments of Atropos have played, as their trainer."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from clawpipe.cli.output import JsonFlag, print_json

if TYPE_CHECKING:
    from clawpipe.data.ingest.run_api import Taken, Wanted


def atropos(
    url: Annotated[str, typer.Argument(metavar="URL", help="Of run-api, e.g. http://127.0.0.1:8000.")],
    output: Annotated[Path, typer.Option("--output", metavar="FOLDER", help="Where the batches go, a file each.")],
    batches: Annotated[int, typer.Option("--batches", min=1, help="To take, of all runs into this folder together.")],
    batch_size: Annotated[int, typer.Option("--batch-size", min=1, help="Sequences of a batch: a multiple of a group's.")] = 64,
    max_length: Annotated[int, typer.Option("--max-length", min=2, help="Tokens of the longest sequence.")] = 4096,
    json_output: JsonFlag = False,
) -> None:
    """Register with Atropos' run-api as the trainer, and take the batches that its environments send.

    Each batch is a file of scored groups, for `clawpipe ingest`. The same command goes on after it was killed.
    """
    import httpx

    from clawpipe.data.ingest.run_api import RunApi, Wanted, take

    wanted = Wanted(batch_size, max_length, batches)
    found: list[Taken] = []
    with httpx.Client(trust_env=False) as client:
        api = RunApi(url, client)
        for taken in take(api, output, wanted, waits=lambda what: typer.echo(what, err=True)):
            found.append(taken)
            typer.echo(_line(taken, wanted), err=True)
        status = api.status() if found else None
    silent = sum(taken.silent for taken in found)
    if silent:
        typer.echo(f"{silent} sequences have no messages, and ingest rejects them: set --env.include_messages true", err=True)
    if json_output:
        print_json({"folder": str(output), "batches": [asdict(taken) for taken in found], "run_api": status})
    else:
        command = f"clawpipe ingest {output} --format atropos --policy-version ... --temperature ..."
        typer.echo(f"{batches} batches in {output}: {command}")


def _line(taken: Taken, wanted: Wanted) -> str:
    return f"batch {taken.number} of {wanted.batches}: {taken.groups} groups, {taken.sequences} sequences"
