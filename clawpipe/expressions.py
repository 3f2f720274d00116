"""Parse text that may be one Python expression into a syntax tree. Nothing is ever evaluated."""

from __future__ import annotations

import ast
import warnings


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
            return ast.parse(text, mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):  # the last two: nesting within the limit
        raise ValueError("not an expression") from None
