"""Parse Python text into syntax trees. Nothing is ever evaluated."""

from __future__ import annotations

import ast
import warnings
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

_TRIES = 20
T = TypeVar("T")


def parse(text: str | bytes) -> ast.Module:
    """Return the syntax tree of a file's text.

    Raises:
        SyntaxError: the text is no Python.
        ValueError: the text has null bytes.
    """
    return undisturbed(lambda: ast.parse(text))


def parse_expression(text: str, limit: int) -> ast.expr:
    """Return the syntax tree of `text`.

    The length is checked before parsing, because deep nesting exhausts the parser, and depth needs characters.

    Raises:
        ValueError: the text is longer than `limit` characters, or not one expression.
    """
    if len(text) > limit:
        raise ValueError(f"longer than {limit} characters")
    try:
        with warnings.catch_warnings():  # an invalid escape in a string warns, but this text is data
            warnings.simplefilter("ignore")
            return undisturbed(lambda: ast.parse(text, mode="eval")).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):  # the last two: nesting within the limit
        raise ValueError("not an expression") from None


def undisturbed(parses: Callable[[], T]) -> T:
    """Call again where another thread parsed meanwhile, be it only for the traceback that it logs: CPython 3.11 counts the depth of
    trees for all threads together, and raises SystemError."""
    for _ in range(_TRIES):
        with suppress(SystemError):
            return parses()
    return parses()
