"""A calculator for text that a model wrote: four operations on numbers, by walking a syntax tree."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable

from clawpipe.expressions import parse_expression

Number = int | float

MAX_CHARACTERS = 100
MAX_MAGNITUDE = 1e15  # floats are exact integers below 2**53, about 9e15

_BINARY: dict[type[ast.operator], Callable[[Number, Number], Number]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}
_UNARY: dict[type[ast.unaryop], Callable[[Number], Number]] = {ast.UAdd: operator.pos, ast.USub: operator.neg}


def calculate(expression: str) -> Number:
    """The value of `expression`: numbers, + - * /, signs and parentheses.

    Raises:
        ValueError: anything else, more than 100 characters, a division by zero, or a magnitude above 1e15 on the way.
    """
    return _value(parse_expression(expression.strip(), MAX_CHARACTERS))


def format_number(value: Number) -> str:
    """The shortest usual spelling: 57, -3, 12.5; at most six decimals."""
    text = f"{value:.6f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)
    return "0" if text == "-0" else text


def _value(node: ast.expr) -> Number:
    match node:
        case ast.Constant(value=int() | float() as value) if not isinstance(value, bool):
            return _bounded(value)
        case ast.UnaryOp(op=op, operand=operand) if type(op) in _UNARY:
            return _UNARY[type(op)](_value(operand))
        case ast.BinOp(op=op, left=left, right=right) if type(op) in _BINARY:
            return _binary(_BINARY[type(op)], _value(left), _value(right))
    raise ValueError("not arithmetic")


def _binary(operation: Callable[[Number, Number], Number], left: Number, right: Number) -> Number:
    try:
        return _bounded(operation(left, right))
    except ZeroDivisionError:
        raise ValueError("division by zero") from None


def _bounded(value: Number) -> Number:
    if not abs(value) <= MAX_MAGNITUDE:  # so written that a NaN is refused as well
        raise ValueError("number too large")
    return value
