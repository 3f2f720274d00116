"""The shop's four tools: two tables in SQLite, made from a seed, and a calculator."""

from __future__ import annotations

import ast
import operator
import sqlite3
from collections.abc import Callable
from contextlib import closing
from functools import lru_cache

from clawpipe.core.basics.syntax import parse_expression
from clawpipe.core.conversation.messages import ToolCall, ToolSpec
from clawpipe.data.wire.arguments import arguments_of
from clawpipe.play.environments.shop_data import CITIES, OBJECTS, SKIES
from clawpipe.play.environments.split import stable_hash

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
TOOLS = (
    ToolSpec("stock", "How many pieces of an item are in stock.", {"item": "string"}),
    ToolSpec("price", "The price of an item.", {"item": "string"}),
    ToolSpec("weather", "The weather in a city.", {"city": "string"}),
    ToolSpec("calc", "The value of an arithmetic expression.", {"expression": "string"}),
)
_SPECS = {tool.name: tool for tool in TOOLS}
_QUERIES = {
    "stock": "SELECT stock FROM inventory WHERE item = ?",
    "price": "SELECT price FROM inventory WHERE item = ?",
    "weather": "SELECT sky FROM weather WHERE city = ?",
}


def calculate(expression: str) -> Number:
    """Return the value of `expression`: numbers, + - * /, signs and parentheses.

    Raises:
        ValueError: anything else, more than 100 characters, a division by zero, or a magnitude above 1e15 on the way.
    """
    return _value(parse_expression(expression.strip(), MAX_CHARACTERS))


def format_number(value: Number) -> str:
    """Return the shortest usual spelling of a number: 57, -3, 12.5; at most six decimals."""
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


class ToolError(Exception):
    """A call that cannot be executed; the policy is given the text."""


class Shop:
    """The inventory of one seed. Stock is 2 to 240 pieces, a price 1 to 60 in halves, the weather one word."""

    def __init__(self, seed: int) -> None:
        self._database = sqlite3.connect(":memory:", check_same_thread=False)  # used by one thread at a time, not always the same
        self._database.deserialize(_tables(seed))

    def close(self) -> None:
        self._database.close()

    def execute(self, call: ToolCall) -> str:
        """Return the result of a call.

        Raises:
            ToolError: no such tool, arguments that do not fit it, or a subject that the shop does not know.
        """
        if call.malformed:
            raise ToolError("malformed call")
        if call.name not in _SPECS:
            raise ToolError("unknown tool")
        return self.look_up(call.name, _only_argument(_SPECS[call.name], call))

    def look_up(self, tool: str, subject: str) -> str:
        """Return the answer of `tool` about an item, a city or an expression.

        Raises:
            ToolError: it knows nothing about it.
        """
        if tool == "calc":
            return _calculated(subject)
        row = self._database.execute(_QUERIES[tool], (subject.strip(),)).fetchone()
        if row is None:
            raise ToolError(f"unknown {next(iter(_SPECS[tool].arguments))}")
        return row[0]


@lru_cache(maxsize=8)
def _tables(seed: int) -> bytes:
    """Return the database of a seed in SQLite's file format: inserting its thousands of rows takes 100 times as long as loading
    it."""
    with closing(sqlite3.connect(":memory:")) as database:
        database.execute("CREATE TABLE inventory (item TEXT PRIMARY KEY COLLATE NOCASE, stock TEXT, price TEXT)")
        database.execute("CREATE TABLE weather (city TEXT PRIMARY KEY COLLATE NOCASE, sky TEXT)")
        database.executemany("INSERT INTO inventory VALUES (?, ?, ?)", [_goods(seed, item) for item in OBJECTS])
        skies = [(city, SKIES[_draw(seed, city, len(SKIES))]) for city in CITIES]
        database.executemany("INSERT INTO weather VALUES (?, ?)", skies)
        database.commit()
        return database.serialize()


def _goods(seed: int, item: str) -> tuple[str, str, str]:
    stock, price = 2 + _draw(seed, f"stock/{item}", 239), (2 + _draw(seed, f"price/{item}", 119)) / 2
    return item, str(stock), format_number(price)


def _draw(seed: int, name: str, below: int) -> int:
    return stable_hash(f"{seed}/{name}") % below


def _only_argument(spec: ToolSpec, call: ToolCall) -> str:
    (wanted,) = spec.arguments
    given = arguments_of(call)
    if given.keys() != {wanted}:
        raise ToolError(f"{spec.name} takes {wanted}")
    if not isinstance(given[wanted], str):
        raise ToolError(f"{wanted} is a string")
    return given[wanted]


def _calculated(expression: str) -> str:
    try:
        return format_number(calculate(expression))
    except ValueError as error:
        raise ToolError(str(error)) from None
