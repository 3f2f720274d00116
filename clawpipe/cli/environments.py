"""`clawpipe env`: list the environments for a night's rollouts."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from clawpipe.cli.output import JsonFlag, print_json

app = typer.Typer(help="Environments for rollouts.", no_args_is_help=True)

FoldersOption = Annotated[list[Path], typer.Option("--dir", "-d", help="A directory with your environments; repeatable.")]


@app.command("list")
def list_(folders: FoldersOption = [], json_output: JsonFlag = False) -> None:  # noqa: B006  (typer copies it)
    """List the built-in environments and those in your directories, without importing any of them."""
    from clawpipe.environments.discovery import list_environments

    found = [asdict(info) for info in list_environments(folders)]
    if json_output:
        print_json({"environments": found})
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from clawpipe.reporting.wording import one_line

    table = Table("name", "kind", "environment.name", "what it is", box=None, pad_edge=False)
    for info in found:
        table.add_row(*(Text(one_line(info[part])) for part in ("name", "kind", "reference", "summary")))
    Console().print(table)
