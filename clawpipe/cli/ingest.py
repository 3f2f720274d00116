"""`clawpipe ingest`: turn what an agent has written into datasets."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from clawpipe.cli.output import JsonFlag, print_json
from clawpipe.core.basics.json_types import JsonObject

if TYPE_CHECKING:
    from clawpipe.core.store.home import Home
    from clawpipe.data.ingest.intake.options import LogprobsKind, Options


def ingest(
    paths: Annotated[
        list[str] | None,
        typer.Argument(
            help="Files, folders, patterns, pipes, s3:// and https:// URLs, packed or not; - is stdin. Default: captured, watched."
        ),
    ] = None,
    format: Annotated[
        str, typer.Option(help="Format of every line, or your file.py:NAME; auto recognises each line by its content.")
    ] = "auto",
    map_: Annotated[
        list[str] | None,
        typer.Option("--map", metavar="TARGET=PATH", help="Map a field of the records, e.g. messages=data.turns or reward=score."),
    ] = None,
    policy_version: Annotated[str | None, typer.Option(help="Policy version that sampled the tokens in the files.")] = None,
    labels: Annotated[Path | None, typer.Option(metavar="FILE", help="JSON Lines of labels: prompt, and success or score.")] = None,
    user: Annotated[str | None, typer.Option(help="User of the sessions, if the files name none.")] = None,
    temperature: Annotated[float | None, typer.Option(help="Sampling temperature of the tokens, if the files name none.")] = None,
    logprobs: Annotated[
        str | None,
        typer.Option(
            metavar="KIND", help="tempered: log-probs at the sampling temperature; raw: at temperature 1, as most tools report."
        ),
    ] = None,
    again: Annotated[bool, typer.Option("--again", help="Read known files from their start, to try rejected lines again.")] = False,
    watch: Annotated[
        bool | None, typer.Option("--watch/--no-watch", help="Name the paths to the `ingest` deployment, or no longer.")
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", metavar="FILE", help="Also write a night's config that learns from all that is stored."),
    ] = None,
    may_be_empty: Annotated[
        bool, typer.Option("--may-be-empty", help="Exit with 0 also where no line was accepted, and not with 65.")
    ] = False,
    json_output: JsonFlag = False,
) -> None:
    """Store the conversations in trajectory files as datasets to train on: trajectories, scores, preference pairs, task items.

    Formats are recognised by content. A line that cannot be used is rejected with its reason, and kept in `quarantine`. Secrets and
    personal data are redacted. A repeated run reads only what is new. With --watch the deployment `ingest` reads the paths as well,
    every ten minutes while `clawpipe up` runs.
    """
    from clawpipe.core.store.home import Home
    from clawpipe.data.ingest.intake.options import Options
    from clawpipe.data.ingest.watched import unwatch
    from clawpipe.data.ingest.watched import watch as watch_from_now_on
    from clawpipe.errors import DataError

    home = Home.from_env()
    options = Options(format, policy_version, labels, user, temperature, cast("LogprobsKind | None", logprobs), tuple(map_ or ()))
    if watch is False:
        unwatch(home, paths or [])
        return
    if watch:
        watch_from_now_on(home, paths or [], options)
    results = []
    for its_options, its_paths in _sources(home, paths, options):
        results.append(_ingest(home, its_paths, its_options, again, output))
        if not json_output:
            _tell(results[-1])
    if json_output:
        print_json(results[0] if paths else {"watched": results})
    if not may_be_empty and any(result["lines"] and not result["accepted"] for result in results):
        raise typer.Exit(DataError.exit_code)


def _sources(home: Home, paths: list[str] | None, options: Options) -> Iterable[tuple[Options, Sequence[str]]]:
    """Return the paths with their options; without paths, the captured segments and the watched paths."""
    from clawpipe.data.ingest.watched import sources
    from clawpipe.errors import ConfigError

    if paths:
        return [(options, paths)]
    known = sources(home)
    if not known:
        raise ConfigError(
            "no path is given, none is watched, and nothing was captured", "PATHS", "name files or folders; --watch remembers them"
        )
    return known.items()


def _ingest(home: Home, paths: Sequence[str], options: Options, again: bool, night: Path | None) -> JsonObject:
    from clawpipe.data.ingest.intake.run import ingest as ingest_files
    from clawpipe.start.proposing.report import ingest_report, write_night

    done = ingest_files(home, paths, options, again=again, waits=lambda who: typer.echo(f"waiting: {who}", err=True))
    remarks = write_night(home, done, night) if night else []
    report = ingest_report(home, done)
    return report | {"warnings": [*report["warnings"], *remarks]}


def _tell(result: JsonObject) -> None:
    from rich.console import Console

    Console(highlight=False, soft_wrap=True).print(*_lines(result), sep="\n", markup=False)


def _lines(result: JsonObject) -> Iterator[str]:
    skipped = f", {result['skipped']} of them with nothing new" if result["skipped"] else ""
    yield f"{result['lines']} lines of {result['files']} files{skipped}: {result['accepted']} accepted"
    for reason, count in result["quarantined"].items():
        yield f"  rejected: {count} x {reason}"
    turns = f"{result['turns']} turns ({result['side_turns']} side)"
    yield f"{result['trajectories']} trajectories, {turns}, {result['with_tokens']} with tokens"
    if result["repeated"]:
        yield f"  stored already: {result['repeated']}"
    for rule, count in result["redactions"].items():
        yield f"  redacted: {count} x {rule}"
    for role in ("dataset", "scores", "preferences", "items", "quarantine"):
        if role in result and result[role]["rows"]:
            name = "trajectories" if role == "dataset" else role
            yield f"{name:<12} {result[role]['digest']}  {result[role]['rows']} rows"
    for warning in result["warnings"]:
        yield f"WARNING: {warning}"
