"""`clawpipe trace`, `promote`, `rollback` and `models`: the versions, their lineage, which is in service by hand, and export."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from clawpipe.cli.forget import SessionOption, UserOption
from clawpipe.cli.output import JsonFlag, print_json, print_table
from clawpipe.core.system.processes import user_name
from clawpipe.serve.export.forms import Form

if TYPE_CHECKING:
    from rich.table import Table

    from clawpipe.record.registry.listing import Listed

app = typer.Typer(help="Registered models.", no_args_is_help=True)

_NAMED = "NAME@champion or NAME@3."
NameOption = Annotated[str, typer.Option("--model", "-m", help="Name of the registered model.")]


@app.command("list")
def list_(
    model: Annotated[str | None, typer.Option("--model", "-m", help="Only versions of this registered model.")] = None,
    verdict: Annotated[str | None, typer.Option("--verdict", help="PROMOTE, HOLD or REJECT.")] = None,
    limit: Annotated[int, typer.Option("--limit", "-l", min=1, help="Most versions to list.")] = 20,
    json_output: JsonFlag = False,
) -> None:
    """List registered versions, the newest first: verdict, held-out figure, aliases, and the version that each started from."""
    from clawpipe.core.store.home import Home
    from clawpipe.record.registry.listing import list_versions
    from clawpipe.record.registry.names import model_name
    from clawpipe.record.registry.tracking import Tracking

    verdict, model = _verdict(verdict), model_name(model) if model else None
    found = list_versions(Tracking.of(Home.from_env(), "none"), model, verdict, limit + 1)
    shown, more = found[:limit], len(found) > limit
    if json_output:
        print_json({"versions": [version.model_dump(mode="json") for version in shown], "more": more})
    elif shown:
        print_table(_table(shown))
        typer.echo(f"the newest {limit}; --limit shows more" if more else "", nl=more)
    elif model or verdict:
        typer.echo("no such versions: `clawpipe models list` shows all")
    else:
        typer.echo("no versions yet: a night registers its candidate unless it is rejected; `clawpipe run -c night.yaml` runs one")


def _verdict(word: str | None) -> str | None:
    from clawpipe.errors import ConfigError
    from clawpipe.learn.evaluation.verdict.verdict import Decision

    known = [decision.value for decision in Decision]
    if word is not None and word.upper() not in known:
        raise ConfigError(f"{word!r} is no verdict", "--verdict", f"write one of {', '.join(known)}")
    return word.upper() if word else None


def _table(versions: list[Listed]) -> Table:
    from rich.table import Table
    from rich.text import Text

    from clawpipe.record.reporting.wording import elided, one_line

    table = Table(box=None, pad_edge=False)
    table.add_column("version", no_wrap=True)
    for name in ("verdict", "held-out", "made", "started from"):
        table.add_column(name)
    table.add_column("night", overflow="fold")
    for one in versions:
        aliases = f" ({', '.join(one.aliases)})" if one.aliases else ""
        parent = f"version {one.parent}" if one.parent else one_line(one.base)
        told = (one.verdict or "-", one.heldout or "-", one.made[:16].replace("T", " "), parent, one.night)
        table.add_row(elided(f"{one.model}@{one.version}{aliases}", 40), *(Text(one_line(text)) for text in told))
    return table


def trace(
    model_version: Annotated[str | None, typer.Argument(help=_NAMED)] = None,
    session: SessionOption = None,
    user: UserOption = None,
    json_output: JsonFlag = False,
) -> None:
    """Follow a model version to the trajectories that trained it, their task items, and the files they were read from.

    Or the other way: from a session or a user to every dataset that holds its rows and every model that learned from them.
    """
    if model_version is None or session or user:
        _trace_subject(model_version, session, user, json_output)
        return
    from clawpipe.core.store.home import Home
    from clawpipe.record.lineage.trace import trace_version
    from clawpipe.record.registry.tracking import Tracking
    from clawpipe.record.registry.versions import resolve
    from clawpipe.record.reporting.terminal import print_trace

    home = Home.from_env()
    found = trace_version(home, resolve(Tracking.of(home, "none"), model_version))
    if json_output:
        print_json(found)
    else:
        print_trace(found)


def _trace_subject(model_version: str | None, session: str | None, user: str | None, json_output: bool) -> None:
    from clawpipe.core.store.home import Home
    from clawpipe.data.forgotten.subject import Subject
    from clawpipe.errors import ConfigError
    from clawpipe.record.lineage.exposure import exposure, exposure_lines, named_by_nothing

    if not (model_version or session or user):
        raise ConfigError("say what to trace: a version, such as NAME@3, or --session ID, or --user ID")
    if model_version:
        raise ConfigError("only one thing can be traced at a time", fix="name a model version, or --session ID, or --user ID")
    found = exposure(Home.from_env(), Subject(session=session, user=user))
    if json_output:
        print_json(found.model_dump(mode="json"))
    else:
        typer.echo("\n".join([*exposure_lines(found), *([] if found.found else [named_by_nothing(found)])]))


def promote(
    model_version: Annotated[str, typer.Argument(help=_NAMED)],
    reason: Annotated[str, typer.Option("--reason", "-r", help="Why the gate is overruled, for the log.")],
    json_output: JsonFlag = False,
) -> None:
    """Put a version in service although the gate held it. The move is logged as forced, with who made it and why.

    `clawpipe rollback` undoes it; the next night compares its candidate with this version.
    """
    from clawpipe.core.store.home import Home
    from clawpipe.record.registry.publish import overrule

    info, move = overrule(Home.from_env(), model_version, user_name(), reason)
    if json_output:
        facts = move.model_dump(mode="json") if move else {"model": info.name, "to_version": info.version}
        print_json({"moved": move is not None, **facts})
    elif move is None:
        typer.echo(f"{info.name}: version {info.version} is champion already")
    else:
        before = f", in place of version {move.from_version}" if move.from_version else ""
        typer.echo(f"{info.name}: version {info.version} is champion{before}")


def rollback(
    model: NameOption,
    reason: Annotated[str, typer.Option("--reason", "-r", help="Why, for the log.")] = "rolled back by hand",
    json_output: JsonFlag = False,
) -> None:
    """Put the previous champion back in service. The move is logged, and no night undoes it."""
    from clawpipe.core.store.home import Home
    from clawpipe.record.registry.names import model_name
    from clawpipe.record.registry.promotions import rollback as roll_back
    from clawpipe.record.registry.tracking import Tracking

    move = roll_back(Tracking.of(Home.from_env(), model_name(model)), who=user_name(), reason=reason)
    if json_output:
        print_json(move.model_dump(mode="json"))
    else:
        typer.echo(f"{move.model}: version {move.to_version} is champion again, in place of version {move.from_version}")


@app.command("export")
def export(
    model_version: Annotated[str, typer.Argument(help=_NAMED)],
    output: Annotated[Path, typer.Option("--output", metavar="FOLDER", help="Directory to create.")],
    form: Annotated[Form, typer.Option("--format", help="What to write.")] = "merged",
    json_output: JsonFlag = False,
) -> None:
    """Write a model version as files for other engines: the adapter, merged weights, merged weights quantized as served, or a GGUF
    file with an Ollama Modelfile."""
    from clawpipe.core.store.home import Home
    from clawpipe.serve.export.files import export_version

    written = export_version(Home.from_env(), model_version, form, output)
    if json_output:
        print_json(written)
    else:
        typer.echo(f"{written['name']} version {written['version']} ({form}) in {written['directory']}")
        if distance := written["distance"]:
            where = f"at most {distance['largest']:.2g} nats off the policy's, {distance['mean']:.2g} on average"
            typer.echo(f"log-probs of the written weights, loaded again: {where} (over {distance['tokens']} tokens)")
        for what in written["left_out"]:
            typer.echo(f"not in the Modelfile: {what}", err=True)
