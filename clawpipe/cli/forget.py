"""`clawpipe forget`: a session, a user or single rows leave every dataset."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from clawpipe.cli.output import JsonFlag, print_json

if TYPE_CHECKING:
    from clawpipe.removal.forget import Forgetting

SessionOption = Annotated[str | None, typer.Option("--session", metavar="ID", help="A session, as its source calls it.")]
UserOption = Annotated[str | None, typer.Option("--user", metavar="ID", help="A user, as the source calls them.")]
TrajectoryOption = Annotated[
    str | None, typer.Option("--trajectory", metavar="ID", help="A trajectory, preference pair or task item.")
]
SourceOption = Annotated[str | None, typer.Option("--source", metavar="FILE", help="What was read from this file.")]
TextOption = Annotated[str | None, typer.Option("--text", metavar="TEXT", help="Whatever holds this text, letter by letter.")]


def forget(
    session: SessionOption = None,
    user: UserOption = None,
    trajectory: TrajectoryOption = None,
    source: SourceOption = None,
    text: TextOption = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what holds it and who learned from it.")] = False,
    json_output: JsonFlag = False,
) -> None:
    """Remove a session, a user or rows from every dataset, and mark the models that learned from it.

    Settings that name a dataset go on with what took its place, so the next night trains without it; data that are read in
    again are set aside. Models keep what they learned until you train them anew from the base.
    """
    from clawpipe.lineage.subject import Subject
    from clawpipe.removal.forget import forget as forget_subject
    from clawpipe.store.home import Home

    subject = Subject(session=session, user=user, trajectory=trajectory, source=source, text=text)
    results = forget_subject(Home.from_env(), subject, dry_run=dry_run)
    if json_output:
        first, *others = [result.model_dump(mode="json") for result in results]
        print_json(first | {"sweeps": others})
    else:
        typer.echo("\n".join(_told(results)))


def _told(results: Sequence[Forgetting]) -> Iterator[str]:
    from clawpipe.lineage.exposure import named_by_nothing, told

    for result in results:
        yield from told(result)
        if result.dry_run:
            continue
        yield from (f"  {old[:12]} is now {new[:12]}" for old, new in result.replaced.items())
        yield from (f"report written anew: {night}" for night in result.reports)
        yield from (f"lines removed: {log}" for log in result.logs)
        yield from (f"WARNING: still holds some of it: {file}" for file in result.residue)
    if not any(result.found for result in results):
        yield named_by_nothing(results[0])
        if not results[0].dry_run:
            yield "It is noted: should data of it come later, they are set aside."
    if results[0].origins:
        yield "The files that it was read from are yours to clean."
    if results[0].models and not results[0].dry_run:
        yield "Marked in the registry. A model forgets only by training anew, from the base: see docs/forgetting.md."
