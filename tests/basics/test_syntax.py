"""Parsing while other threads parse."""

from __future__ import annotations

import ast
import gc
from collections.abc import Callable, Iterator

import pytest

from clawpipe.core.basics.syntax import parse, parse_expression

LONG = " + ".join(f"f({number})" for number in range(50))


@pytest.fixture
def disturbed() -> Iterator[Callable[[], int]]:
    """Another text is parsed while the first three trees are built, at another depth of calls, as a switch of threads does; returns
    how often."""
    times = 0

    def parses(phase: str, info: dict) -> None:
        nonlocal times
        if phase == "start" and times < 3:
            times += 1
            [ast.parse(text) for text in ("a", "b")]

    thresholds = gc.get_threshold()
    gc.collect()
    gc.callbacks.append(parses)
    gc.set_threshold(1)
    try:
        yield lambda: times
    finally:
        gc.callbacks.remove(parses)
        gc.set_threshold(*thresholds)


def test_a_text_is_parsed_beside_another(disturbed):
    tree = parse(f"x = {LONG}")
    assert disturbed() == 3
    assert ast.unparse(tree) == f"x = {LONG}"


def test_an_expression_is_parsed_beside_another(disturbed):
    tree = parse_expression(LONG, limit=10_000)
    assert disturbed() == 3
    assert ast.unparse(tree) == LONG


def test_a_text_that_is_no_python_is_told():
    with pytest.raises(SyntaxError):
        parse("x = (")
    with pytest.raises(ValueError, match="not an expression"):
        parse_expression("x = 1", limit=10)
