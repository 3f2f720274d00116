"""`clawpipe config`: the schema of a night's settings, and the settings that a file results in."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from clawpipe.cli.output import JsonFlag, print_json

app = typer.Typer(help="A night's settings.", no_args_is_help=True)

ConfigOption = Annotated[Path, typer.Option("--config", "-c", help="YAML file of the night's settings.")]
OverrideOption = Annotated[
    list[str],
    typer.Option("--override", "-o", metavar="FIELD=VALUE", help="A setting on top of the file, e.g. -o train.method=sft."),
]


@app.command()
def schema() -> None:
    """Print the JSON Schema of a night's config: every field, its default and its allowed values."""
    from clawpipe.core.config import NightConfig

    print_json(NightConfig.model_json_schema())


@app.command()
def show(config: ConfigOption, override: OverrideOption = [], json_output: JsonFlag = False) -> None:  # noqa: B006  (typer copies it)
    """Print the settings that result from a config file and overrides, including defaults."""
    from clawpipe.core.config import load_config

    settings = load_config(config, override).model_dump(mode="json")
    if json_output:
        print_json(settings)
    else:
        import yaml

        typer.echo(yaml.safe_dump(settings, sort_keys=False, allow_unicode=True), nl=False)
