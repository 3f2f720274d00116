"""What commands print: for people on a terminal, or one JSON object on stdout."""

from __future__ import annotations

import io
import json
import sys
import textwrap
from inspect import cleandoc
from typing import Annotated, Any

import typer

from clawpipe.errors import ClawpipeError

JsonFlag = Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout, errors included.")]


def print_json(value: Any) -> None:
    """One JSON value on stdout, in ASCII where that is not UTF-8."""
    ascii_only = not (sys.stdout.encoding or "").lower().startswith("utf")
    json.dump(value, sys.stdout, indent=2, ensure_ascii=ascii_only)
    sys.stdout.write("\n")


def harmless(text: str) -> str:
    """`text`, which may quote anybody's file, without characters that would steer a terminal; its lines stay."""
    return "".join(character if character.isprintable() or character in "\n\t" else " " for character in text)


def tell(error: ClawpipeError, as_json: bool) -> None:
    """An error: one message on stderr, or one JSON object on stdout."""
    if as_json:
        print_json(error.as_dict())
    else:
        print(f"clawpipe: {harmless(str(error))}", file=sys.stderr)


def any_text() -> None:
    """Whatever the terminal's encoding: what it has no sign for is written as an escape, and ends no command."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def wrapped(line: str, width: int) -> str:
    """A line that goes on further in where the terminal ends; no word, and no path, is broken."""
    indent = " " * (len(line) - len(line.lstrip()) + 2)
    parts = textwrap.wrap(line, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
    return "\n".join(parts)


def paragraphs(text: str) -> str:
    """A docstring whose lines break where the terminal ends, and not where those of the source do."""
    return "\n\n".join(" ".join(part.split()) for part in cleandoc(text).split("\n\n"))


def wants_json(arguments: list[str]) -> bool:
    """Whether the command line asks for JSON, known before it is parsed: a wrong command line is answered in JSON too."""
    options = arguments[: arguments.index("--")] if "--" in arguments else arguments
    return "--json" in options
