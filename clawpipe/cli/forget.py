"""`clawpipe forget`: remove a session, a user or single rows from every dataset."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from clawpipe.cli.output import JsonFlag, print_json

if TYPE_CHECKING:
    from clawpipe.record.removal.forget import Forgetting

SessionOption = Annotated[str | None, typer.Option("--session", metavar="ID", help="A session's id in its source.")]
KeyOption = Annotated[
    str | None, typer.Option("--key", metavar="NAME", help="With --session: only the one that was captured with this key.")
]
UserOption = Annotated[str | None, typer.Option("--user", metavar="ID", help="A user's id in the source.")]
TrajectoryOption = Annotated[
    str | None, typer.Option("--trajectory", metavar="ID", help="A trajectory, preference pair or task item.")
]
SourceOption = Annotated[str | None, typer.Option("--source", metavar="FILE", help="Everything read from this file.")]
TextOption = Annotated[str | None, typer.Option("--text", metavar="TEXT", help="Everything that holds exactly this text.")]


_LATER = "This is recorded: later data of it are rejected."
_NOT_LATER = "Later data of it are not rejected, since only their rows tell them: forget it once they are read in."


def forget(
    session: SessionOption = None,
    key: KeyOption = None,
    user: UserOption = None,
    trajectory: TrajectoryOption = None,
    source: SourceOption = None,
    text: TextOption = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only show which data hold it and which models learned from it.")
    ] = False,
    json_output: JsonFlag = False,
) -> None:
    """Remove a session, a user or rows from every dataset, and mark the models that learned from it.

    Clients of several keys may call their sessions the same: then --key says whose is meant.

    Settings that name a dataset then use its replacement, so the next night trains without the forgotten rows; rows that are read
    again are rejected. Models keep what they learned until you train them again from the base.
    """
    from clawpipe.core.store.home import Home
    from clawpipe.data.forgotten.subject import Subject
    from clawpipe.record.removal.forget import forget as forget_subject

    subject = Subject(session=session, user=user, trajectory=trajectory, source=source, text=text, key=key)
    results = forget_subject(Home.from_env(), subject, dry_run=dry_run)
    if json_output:
        first, *others = [result.model_dump(mode="json") for result in results]
        print_json(first | {"sweeps": others})
    else:
        typer.echo("\n".join(_lines(results)))


def _lines(results: Sequence[Forgetting]) -> Iterator[str]:
    from clawpipe.record.lineage.exposure import exposure_lines, named_by_nothing

    for result in results:
        yield from exposure_lines(result)
        yield from [f"{result.captured} turns in the gateway's segments"] if result.captured else []
        yield from [f"{result.votes} answers of judges"] if result.votes else []
        yield from [f"{result.reviews} decisions of reviewers"] if result.reviews else []
        if result.dry_run:
            continue
        yield from (f"  {old[:12]} is now {new[:12]}" for old, new in result.replaced.items())
        yield from (f"report rewritten: {night}" for night in result.reports)
        yield from [f"{result.screenshots} screenshots removed"] if result.screenshots else []
        yield from (f"lines removed: {log}" for log in result.logs)
        yield from (f"WARNING: still holds some of it: {file}" for file in result.still_held)
    if not any(result.found for result in results):
        yield named_by_nothing(results[0])
        if not results[0].dry_run:
            yield _LATER if results[0].text is None and results[0].source is None else _NOT_LATER
    if results[0].origins:
        yield "The source files still hold it: remove it there yourself."
    if results[0].models and not results[0].dry_run:
        yield "Marked in the registry. A model forgets only when it is trained again from the base: see docs/forgetting.md."
