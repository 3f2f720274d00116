"""Output of commands: for people on a terminal, or one JSON object on stdout."""

from __future__ import annotations

import io
import json
import re
import sys
import textwrap
from inspect import cleandoc
from typing import Annotated, Any

import typer

from clawpipe.core.basics.json_types import Options
from clawpipe.errors import ClawpipeError

JsonFlag = Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout, errors included.")]


def print_json(value: Any) -> None:
    """Print one JSON value on stdout, in ASCII unless stdout is UTF-8."""
    ascii_only = not (sys.stdout.encoding or "").lower().startswith("utf")
    json.dump(value, sys.stdout, indent=2, ensure_ascii=ascii_only)
    sys.stdout.write("\n")


def print_table(table: Any) -> None:
    """Print a table as wide as the terminal; of 140 columns where there is none."""
    from rich.console import Console

    Console(width=None if sys.stdout.isatty() else 140, highlight=False).print(table)


def print_at_80(what: Any) -> None:
    """Print a renderable as wide as the terminal; of 80 columns, and not cropped, where there is none."""
    from rich.console import Console

    Console(width=None if sys.stdout.isatty() else 80).print(what, crop=False)


def printable(text: str) -> str:
    """Return `text` without characters that control a terminal; line breaks stay."""
    return "".join(character if character.isprintable() or character in "\n\t" else " " for character in text)


def tell(error: ClawpipeError, as_json: bool) -> None:
    """Print an error: one message on stderr, or one JSON object on stdout."""
    if as_json:
        print_json(error.as_dict())
    else:
        print(f"clawpipe: {printable(str(error))}", file=sys.stderr)


def escape_unencodable() -> None:
    """Escape characters that the terminal's encoding lacks, instead of failing."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def wrapped(line: str, width: int) -> str:
    """Wrap a line at the terminal's width with an indent; words and paths are not broken."""
    indent = " " * (len(line) - len(line.lstrip()) + 2)
    parts = textwrap.wrap(line, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
    return "\n".join(parts)


def paragraphs(text: str) -> str:
    """Join the lines of each paragraph of a docstring, so that they break at the terminal's width."""
    return "\n\n".join(" ".join(part.split()) for part in cleandoc(text).split("\n\n"))


def without_markup(text: str) -> str:
    """Return a help text in which rich takes no `[word]` as markup."""
    return re.sub(r"(?<!\\)\[(?=[a-zA-Z#/@][^\[]*?\])", r"\\[", text)


def wants_json(arguments: list[str]) -> bool:
    """Return whether the command line asks for JSON, before it is parsed: its errors are JSON, too."""
    options = arguments[: arguments.index("--")] if "--" in arguments else arguments
    return "--json" in options


def options_of(words: list[str]) -> Options:
    """Return options by name, from NAME=VALUE; their values are YAML."""
    from clawpipe.core.basics.plain_yaml import parse_yaml
    from clawpipe.errors import ConfigError

    found: Options = {}
    for word in words:
        name, separator, value = word.partition("=")
        if not name or not separator:
            raise ConfigError(f"{word!r} is no option", "--option", "write NAME=VALUE, e.g. --option file=prompts.jsonl")
        found[name] = parse_yaml(value)
    return found
