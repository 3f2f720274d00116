"""What commands print: for people on a terminal, or one JSON object on stdout."""

from __future__ import annotations

import json
import sys
from typing import Annotated, Any

import typer

JsonFlag = Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout, errors included.")]


def print_json(value: Any) -> None:
    """One JSON value on stdout."""
    json.dump(value, sys.stdout, indent=2, ensure_ascii=False)
    sys.stdout.write("\n")


def wants_json(arguments: list[str]) -> bool:
    """Whether the command line asks for JSON, known before it is parsed: a wrong command line is answered in JSON too."""
    options = arguments[: arguments.index("--")] if "--" in arguments else arguments
    return "--json" in options
