"""Text that may be one Python expression, as a syntax tree: bounded and quiet. Nothing is ever evaluated here."""

from __future__ import annotations

import ast
import warnings


def parse_expression(text: str, limit: int) -> ast.expr:
    """The syntax tree of `text`.

    The limit comes before the parser because deep nesting is what exhausts it, and depth needs characters.

    Raises:
        ValueError: longer than `limit` characters, or not one expression.
    """
    if len(text) > limit:
        raise ValueError(f"longer than {limit} characters")
    try:
        with warnings.catch_warnings():  # an odd escape in a string warns, and this text is data, not our source
            warnings.simplefilter("ignore")
            return ast.parse(text, mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):  # the last two: nesting that the limit lets through
        raise ValueError("not an expression") from None
