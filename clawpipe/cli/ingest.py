"""`clawpipe ingest`: what an agent left behind becomes datasets."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from clawpipe.cli.output import JsonFlag, print_json

if TYPE_CHECKING:
    from clawpipe.ingest.options import Told


def ingest(
    paths: Annotated[
        list[str],
        typer.Argument(help="Files, folders, patterns, pipes, s3:// and https:// URLs, packed or not; - is stdin."),
    ],
    format: Annotated[
        str, typer.Option(help="Format of every line, or file.py:NAME of your own; auto tells it by the line's content.")
    ] = "auto",
    map_: Annotated[
        list[str] | None,
        typer.Option("--map", metavar="TARGET=PATH", help="Where records hold what, e.g. messages=data.turns or reward=score."),
    ] = None,
    policy_version: Annotated[str | None, typer.Option(help="Policy version that sampled the tokens in the files.")] = None,
    labels: Annotated[Path | None, typer.Option(metavar="FILE", help="JSON Lines of labels: prompt, and success or score.")] = None,
    user: Annotated[str | None, typer.Option(help="Whose sessions they are, where the files do not say.")] = None,
    temperature: Annotated[
        float | None, typer.Option(help="Sampling temperature of the tokens, where the files do not say.")
    ] = None,
    logprobs: Annotated[
        str | None,
        typer.Option(metavar="KIND", help="tempered: log-probs at the sampling temperature; raw: at 1, as most report."),
    ] = None,
    again: Annotated[
        bool, typer.Option("--again", help="Read known files from their start: what was set aside is tried anew.")
    ] = False,
    json_output: JsonFlag = False,
) -> None:
    """Store the conversations in trajectory files as datasets to train on: trajectories, scores, preference pairs, task items.

    Formats are recognised by content. A line that cannot be used is set aside with its reason, and kept in `quarantine`. Secrets
    and personal data are redacted. Run it again and only what is new is read.
    """
    from clawpipe.ingest.options import Options
    from clawpipe.ingest.report import facts
    from clawpipe.ingest.run import ingest as ingest_files
    from clawpipe.store.home import Home

    home = Home.from_env()
    options = Options(format, policy_version, labels, user, temperature, cast("Told | None", logprobs), tuple(map_ or ()))
    told = facts(home, ingest_files(home, paths, options, again=again, waits=lambda who: typer.echo(f"waiting: {who}", err=True)))
    if json_output:
        print_json(told)
        return
    from rich.console import Console

    Console(highlight=False, soft_wrap=True).print(*_lines(told), sep="\n", markup=False)


def _lines(told: dict[str, Any]) -> Iterator[str]:
    skipped = f", {told['skipped']} of them with nothing new" if told["skipped"] else ""
    yield f"{told['lines']} lines of {told['files']} files{skipped}: {told['accepted']} accepted"
    for reason, count in told["quarantined"].items():
        yield f"  set aside: {count} x {reason}"
    turns = f"{told['turns']} turns ({told['side_turns']} side)"
    yield f"{told['trajectories']} trajectories, {turns}, {told['with_tokens']} with tokens"
    if told["repeated"]:
        yield f"  stored already: {told['repeated']}"
    for rule, count in told["redactions"].items():
        yield f"  redacted: {count} x {rule}"
    for role in ("dataset", "scores", "preferences", "items", "quarantine"):
        if role in told and told[role]["rows"]:
            name = "trajectories" if role == "dataset" else role
            yield f"{name:<12} {told[role]['digest']}  {told[role]['rows']} rows"
    for warning in told["warnings"]:
        yield f"WARNING: {warning}"
