"""`clawpipe datasets` and `clawpipe export`: list datasets, show their contents, write them for other tools."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from clawpipe.cli.output import JsonFlag, print_json
from clawpipe.core.basics.json_types import Row

if TYPE_CHECKING:
    from rich.console import Console

    from clawpipe.core.store.artifacts import Store
    from clawpipe.core.store.home import Home
    from clawpipe.core.store.refs import DatasetRef
    from clawpipe.record.reporting.datasets import Listed, Profile

app = typer.Typer(help="The datasets of this home.", no_args_is_help=True)

DatasetArgument = Annotated[
    str, typer.Argument(metavar="DATASET", help="Digest or its beginning, or a name for its newest dataset to learn from.")
]
_CELL = 400  # most characters of a value to show
_SHOWN = 50  # datasets of a list


@app.command("list")
def list_(
    name: Annotated[str | None, typer.Option("--name", help="Only datasets of this name, e.g. trajectories.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="Also shards, and datasets that later runs have replaced.")] = False,
    limit: Annotated[int | None, typer.Option("--limit", "-l", min=1, help="Most to show; by default 50, with --json all.")] = None,
    json_output: JsonFlag = False,
) -> None:
    """List the datasets that nights and ingest have made, newest first."""
    from clawpipe.core.store.home import Home
    from clawpipe.core.store.open import open_store
    from clawpipe.record.reporting.datasets import catalogue

    home = Home.from_env()
    most = limit if limit or json_output else _SHOWN
    found = catalogue(home, open_store(home), name, everything=everything, limit=most)
    if json_output:
        print_json({"datasets": [entry.model_dump(mode="json") for entry in found.datasets]})
        return
    from rich.console import Console

    console = Console(highlight=False)
    shown = found.datasets
    console.print(_table(shown) if shown else "no datasets yet: `clawpipe ingest` and `clawpipe run` make them")
    if found.older:
        console.print(f"{found.older} older ones: --limit {len(shown) + found.older} shows them")
    if found.hidden:
        console.print(f"{found.hidden} more without a night or an ingest log: --all shows them")


def _table(found: list[Listed]) -> Any:
    from rich.table import Table

    table = Table("name", "digest", box=None, pad_edge=False)
    table.add_column("rows", justify="right")
    table.add_column("MB", justify="right")
    table.add_column("made")
    table.add_column("from", overflow="fold")
    for entry in found:
        source = ", ".join(
            [*(["ingest"] if entry.ingested else []), *entry.nights[:2], *(["..."] if len(entry.nights) > 2 else [])]
        )
        table.add_row(
            entry.name, entry.digest[:12], str(entry.rows), f"{entry.bytes / 1e6:.2f}", entry.made[:16].replace("T", " "), source
        )
    return table


@app.command("waiting")
def waiting_(
    model: Annotated[str, typer.Option("--model", "-m", help="Registered model that the nights are for.")] = "clawpipe-agent",
    json_output: JsonFlag = False,
) -> None:
    """Show what was ingested and no night with a verdict has used: what `new` stands for in a night's config."""
    from clawpipe.core.store.datasets import dataset_ref
    from clawpipe.core.store.home import Home
    from clawpipe.core.store.open import open_store
    from clawpipe.record.registry.names import model_name
    from flows.datasets import DATASETS, waiting

    home = Home.from_env()
    store, model = open_store(home), model_name(model)
    found = [dataset_ref(store, name, digest) for name in DATASETS.values() for digest in waiting(home, model, name)]
    if json_output:
        print_json({"model": model, "datasets": [ref.model_dump(include={"name", "digest", "rows"}) for ref in found]})
        return
    for ref in found:
        typer.echo(f"{ref.name:<17} {ref.digest[:12]}  {ref.rows} rows")
    typer.echo(f"{len(found)} datasets wait for a night of {model}" if found else f"nothing waits for a night of {model}")


@app.command("show")
def show(
    dataset: DatasetArgument,
    limit: Annotated[int, typer.Option("--limit", "-l", min=0, help="Rows to show, spread over the dataset.")] = 3,
    json_output: JsonFlag = False,
) -> None:
    """Show the contents of a dataset: counts and ranges by column, filtered rows by reason, and sample rows.

    The rows of `quarantine` are rejected lines with file, line and reasons. After an update, `clawpipe ingest FILE --again` tries
    them again.
    """
    from clawpipe.core.store.home import Home
    from clawpipe.core.store.open import open_store
    from clawpipe.record.reporting.datasets import named_dataset, profile, samples

    home = Home.from_env()
    store = open_store(home)
    ref = named_dataset(home, store, dataset)
    found, rows = profile(home, store, ref), samples(store, ref, limit)
    if json_output:
        print_json(found.model_dump(mode="json") | {"samples": rows})
        return
    from rich.console import Console

    console = Console(highlight=False)
    for line in _lines(found):
        console.print(line, markup=False, soft_wrap=True)
    for number, row in enumerate(rows, 1):
        _print_row(console, number, ref.name, row)


def _lines(found: Profile) -> Iterator[str]:
    yield f"{found.name} {found.digest}"
    yield f"{found.rows} rows, {found.bytes / 1e6:.2f} MB, stored {found.made}"
    made = [*(["ingest"] if found.ingested else []), *found.nights]
    yield f"from {', '.join(made)}" if made else "not named by a night or an ingest log"
    for column, profile in found.columns.items():
        yield f"  {column:<20} " + ", ".join(f"{name}: {_short(value)}" for name, value in profile.items())
    for step, reasons in found.filtered.items():
        yield from (f"filtered in {step}: {count} x {reason}" for reason, count in reasons.items())
    yield from (f"rejected beside it: {dataset}" for dataset in found.beside)
    yield ""


def _short(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _print_row(console: Console, number: int, name: str, row: Row) -> None:
    from rich.text import Text

    from clawpipe.cli.inspect import decoder, shown
    from clawpipe.core.basics.words import plain

    if name == "trajectories":
        from clawpipe.data.importers.formats.native import read_native

        console.print(*shown(number, read_native(row), decoder(None)), sep="\n")
        return
    console.print(Text(f"[{number}]", style="bold"))
    for column, value in row.items():
        text = plain(str(value))
        console.print(Text(f"  {column}: {text[:_CELL]}" + ("..." if len(text) > _CELL else "")), soft_wrap=True)


def _with_logprobs(home: Home, store: Store, ref: DatasetRef, config: Path) -> DatasetRef:
    """Return the dataset with the log-probs that policies of these settings say; the dataset itself if they can add none."""
    from clawpipe.core.config import load_config
    from clawpipe.errors import ConfigError
    from clawpipe.play.recorded.recompute import recompute_logprobs
    from clawpipe.play.workers.pool import WorkerPool
    from flows.policies import untrained

    if ref.name != "trajectories":
        raise ConfigError(f"{ref.name} have no log-probs to compute", "--config", "leave it out")
    settings = load_config(config, [])
    base = untrained(settings.model)
    with WorkerPool(settings.runtime, home.logs) as pool:
        done = recompute_logprobs(store, pool, ref, base, base, (), text=False, max_tokens=sys.maxsize)
    return done.dataset


def export(
    dataset: DatasetArgument,
    form: Annotated[
        Literal["chat", "sharegpt", "atropos", "parquet", "hf"], typer.Option("--format", help="What to write.")
    ] = "chat",
    output: Annotated[Path | None, typer.Option("--output", help="New file or directory; without it lines go to stdout.")] = None,
    config: Annotated[
        Path | None, typer.Option("--config", "-c", help="A night's settings: its policies say the log-probs that rows lack.")
    ] = None,
    json_output: JsonFlag = False,
) -> None:
    """Write a dataset in another tool's format.

    JSON Lines: chat is OpenAI's format, sharegpt is Hermes' format, atropos. Directories: parquet, and hf for `load_from_disk`.
    Trajectories, preference pairs and task items can be written in all formats that fit them, any dataset as parquet and hf. Rows
    that cannot be written are counted with their reasons. With --config, tokens whose log-probs cannot be used get those of the
    policy that their row names: the base of these settings, or one that was trained from it.
    """
    from clawpipe.core.store.home import Home
    from clawpipe.core.store.open import open_store
    from clawpipe.errors import ConfigError
    from clawpipe.record.reporting.datasets import named_dataset
    from clawpipe.serve.export.datasets import export_dataset

    if json_output and output is None:
        raise ConfigError("the lines themselves would go to stdout", "--json", "name a file with --output")
    home = Home.from_env()
    store = open_store(home)
    ref = named_dataset(home, store, dataset)
    if config is not None:
        ref = _with_logprobs(home, store, ref, config)
    done = export_dataset(store, ref, form, output or sys.stdout.buffer)
    written = {"name": ref.name, "digest": ref.digest, "format": form, "rows": done.rows, "lines": done.lines}
    if json_output:
        print_json(written | {"filtered": dict(done.filtered), "output": str(output)})
        return
    typer.echo(
        f"{ref.name} {ref.digest[:12]}: {done.rows} of {ref.rows} rows as {form}" + (f" in {output}" if output else ""), err=True
    )
    for reason, count in done.filtered.items():
        typer.echo(f"  left out: {count} x {reason}", err=True)
