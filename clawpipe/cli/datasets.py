"""`clawpipe datasets` and `clawpipe export`: what is stored, what is in it, and out to other tools."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from clawpipe.cli.output import JsonFlag, print_json

if TYPE_CHECKING:
    from rich.console import Console

    from clawpipe.reporting.datasets import Listed, Profile

app = typer.Typer(help="The datasets of this home.", no_args_is_help=True)

DatasetArgument = Annotated[str, typer.Argument(metavar="DATASET", help="Digest or its beginning, or a name: the newest of it.")]
_CELL = 400  # characters of a value that are shown


@app.command("list")
def list_(
    name: Annotated[str | None, typer.Option("--name", "-n", help="Only those of this name, such as trajectories.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="Also shards, and what later runs have replaced.")] = False,
    json_output: JsonFlag = False,
) -> None:
    """List the datasets that nights and ingest have made, the newest first."""
    from clawpipe.reporting.datasets import catalogue
    from clawpipe.store.home import Home
    from clawpipe.store.open import open_store

    home = Home.from_env()
    known = catalogue(home, open_store(home), name)
    found = [one for one in known if everything or one.ingested or one.nights]
    if json_output:
        print_json({"datasets": [one.model_dump(mode="json") for one in found]})
        return
    from rich.console import Console

    console = Console(highlight=False)
    console.print(_table(found) if found else "no datasets yet: `clawpipe ingest` and `clawpipe run` make them")
    if len(known) > len(found):
        console.print(f"{len(known) - len(found)} more that no night and no log of ingest names: --all shows them")


def _table(found: list[Listed]) -> Any:
    from rich.table import Table

    table = Table("name", "digest", box=None, pad_edge=False)
    table.add_column("rows", justify="right")
    table.add_column("MB", justify="right")
    table.add_column("made")
    table.add_column("from", overflow="fold")
    for one in found:
        source = ", ".join([*(["ingest"] if one.ingested else []), *one.nights[:2], *(["..."] if len(one.nights) > 2 else [])])
        table.add_row(one.name, one.digest[:12], str(one.rows), f"{one.bytes / 1e6:.2f}", one.made[:16].replace("T", " "), source)
    return table


@app.command("show")
def show(
    dataset: DatasetArgument,
    limit: Annotated[int, typer.Option("--limit", "-n", min=0, help="Rows to show, from all over the dataset.")] = 3,
    json_output: JsonFlag = False,
) -> None:
    """Show what is in a dataset: counts and ranges by column, what was set aside and why, rows to read.

    Of `quarantine` the rows are the lines that were set aside, with their file, line and reasons. To try them again after an
    update: `clawpipe ingest FILE --again`.
    """
    from clawpipe.reporting.datasets import profile, samples
    from clawpipe.store.datasets import find_dataset
    from clawpipe.store.home import Home
    from clawpipe.store.open import open_store

    home = Home.from_env()
    store = open_store(home)
    ref = find_dataset(store, dataset)
    found, rows = profile(home, store, ref), samples(store, ref, limit)
    if json_output:
        print_json(found.model_dump(mode="json") | {"samples": rows})
        return
    from rich.console import Console

    console = Console(highlight=False)
    for line in _told(found):
        console.print(line, markup=False, soft_wrap=True)
    for number, row in enumerate(rows, 1):
        _print_row(console, number, ref.name, row)


def _told(found: Profile) -> Iterator[str]:
    yield f"{found.name} {found.digest}"
    yield f"{found.rows} rows, {found.bytes / 1e6:.2f} MB, stored {found.made}"
    made = [*(["ingest"] if found.ingested else []), *found.nights]
    yield f"from {', '.join(made)}" if made else "named by no night and no log of ingest"
    for column, facts in found.columns.items():
        yield f"  {column:<20} " + ", ".join(f"{name}: {_short(value)}" for name, value in facts.items())
    for step, reasons in found.set_aside.items():
        yield from (f"set aside in {step}: {count} x {reason}" for reason, count in reasons.items())
    yield from (f"set aside beside it: {one}" for one in found.beside)
    yield ""


def _short(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _print_row(console: Console, number: int, name: str, row: dict[str, Any]) -> None:
    from rich.text import Text

    from clawpipe.cli.inspect import decoder, plain, shown

    if name == "trajectories":
        from clawpipe.importers.native import read_native

        console.print(*shown(number, read_native(row), decoder(None)), sep="\n")
        return
    console.print(Text(f"[{number}]", style="bold"))
    for column, value in row.items():
        text = plain(str(value))
        console.print(Text(f"  {column}: {text[:_CELL]}" + ("..." if len(text) > _CELL else "")), soft_wrap=True)


def export(
    dataset: DatasetArgument,
    form: Annotated[
        Literal["chat", "sharegpt", "atropos", "parquet", "hf"], typer.Option("--format", "-f", help="What to write.")
    ] = "chat",
    out: Annotated[Path | None, typer.Option("--out", "-o", help="New file or directory; without it lines go to stdout.")] = None,
    json_output: JsonFlag = False,
) -> None:
    """Write a dataset in another tool's format.

    JSON Lines: chat as OpenAI has it, sharegpt as Hermes has it, atropos. Directories: parquet, and hf for `load_from_disk`.
    Trajectories, preference pairs and task items have all that fit them; any dataset has parquet and hf. What has no such form is
    counted with its reason.
    """
    from clawpipe.errors import ConfigError
    from clawpipe.export.datasets import export_dataset
    from clawpipe.store.datasets import find_dataset
    from clawpipe.store.home import Home
    from clawpipe.store.open import open_store

    if json_output and out is None:
        raise ConfigError("the lines themselves would go to stdout", "--json", "name a file with --out")
    store = open_store(Home.from_env())
    ref = find_dataset(store, dataset)
    done = export_dataset(store, ref, form, out or sys.stdout.buffer)
    facts = {"name": ref.name, "digest": ref.digest, "format": form, "rows": done.rows, "lines": done.lines}
    if json_output:
        print_json(facts | {"set_aside": dict(done.set_aside), "out": str(out)})
        return
    typer.echo(f"{ref.name} {ref.digest[:12]}: {done.rows} of {ref.rows} rows as {form}" + (f" in {out}" if out else ""), err=True)
    for reason, count in done.set_aside.items():
        typer.echo(f"  set aside: {count} x {reason}", err=True)
