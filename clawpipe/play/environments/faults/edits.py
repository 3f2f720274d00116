"""Faults in Python source: small edits, found in its syntax tree and made in its text, so that the rest stays as it is written."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeAlias

from clawpipe.core.basics.syntax import parse

_COMPARED: dict[type[ast.cmpop], str] = {
    ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">", ast.Eq: "!=", ast.NotEq: "==",
    ast.Is: "is not", ast.IsNot: "is", ast.In: "not in", ast.NotIn: "in",
}  # fmt: skip
_ARITHMETIC: dict[type[ast.operator], str] = {
    ast.Add: "-",
    ast.Sub: "+",
    ast.Mult: "+",
    ast.Div: "*",
    ast.FloorDiv: "*",
    ast.Mod: "//",
}
_PAIRS = {
    "min": "max", "any": "all", "startswith": "endswith", "lstrip": "rstrip", "lower": "upper", "find": "rfind", "split": "rsplit",
    "append": "extend", "partition": "rpartition", "update": "setdefault",
}  # fmt: skip
_OTHER_NAME = _PAIRS | {other: name for name, other in _PAIRS.items() if name not in ("append", "update")}
_Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Fault:
    """An edit that may make a program wrong.

    Attributes:
        kind: e.g. "off by one".
        function: the qualified name of the function that it is in.
        line: where, from 1.
        source: the whole file with the fault.
    """

    kind: str
    function: str
    line: int
    source: str


class Source:
    """A file of Python, whose nodes are found in its text."""

    def __init__(self, text: str) -> None:
        self.tree = parse(text)
        self._data = text.encode()
        starts = [0]
        for line in self._data.split(b"\n"):
            starts.append(starts[-1] + len(line) + 1)
        self._starts = starts

    def start(self, node: ast.expr | ast.stmt) -> int:
        return self._starts[node.lineno - 1] + node.col_offset

    def end(self, node: ast.expr | ast.stmt) -> int:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return self._starts[node.end_lineno - 1] + node.end_col_offset

    def text(self, start: int, end: int) -> str:
        return self._data[start:end].decode()

    def of(self, node: ast.expr | ast.stmt) -> str:
        return self.text(self.start(node), self.end(node))

    def replaced(self, start: int, end: int, text: str) -> str:
        """Return the whole text with one piece of it replaced."""
        return (self._data[:start] + text.encode() + self._data[end:]).decode()

    def with_node(self, node: ast.expr | ast.stmt, text: str) -> str:
        return self.replaced(self.start(node), self.end(node), text)


Edit: TypeAlias = tuple[int, str]  # its line, and the whole file with it


def faults(text: str) -> list[Fault]:
    """Return every fault that can be planted into a file, in the order of its functions; each is a program that parses.

    Raises:
        SyntaxError: the file is no Python.
    """
    source = Source(text)
    found: dict[str, Fault] = {}
    for name, function in _functions(source.tree, ""):
        for node in _own_nodes(function):
            for kind, edits in _KINDS.items():
                for line, edited in edits(source, node):
                    if _parses(edited) and edited != text:
                        found.setdefault(edited, Fault(kind, name, line, edited))
    return list(found.values())


def _functions(node: ast.AST, prefix: str) -> Iterator[tuple[str, _Function]]:
    """Yield functions and methods with their qualified names; what is defined within a function belongs to it."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, _Function):
            yield prefix + child.name, child
        elif isinstance(child, ast.ClassDef):
            yield from _functions(child, f"{prefix}{child.name}.")
        elif isinstance(child, ast.If | ast.Try | ast.With):
            yield from _functions(child, prefix)


def _own_nodes(function: _Function) -> Iterator[ast.AST]:
    """Yield the nodes of a function, annotations and decorators left out, from top to bottom."""
    yield function
    waiting: list[ast.AST] = list(reversed(function.body))
    while waiting:
        node = waiting.pop()
        yield node
        left = [child for child in ast.iter_child_nodes(node) if not (isinstance(node, ast.AnnAssign) and child is node.annotation)]
        waiting += reversed(left)


def _parses(text: str) -> bool:
    try:
        parse(text)
    except (SyntaxError, ValueError):
        return False
    return True


def _operator(source: Source, left: ast.expr, right: ast.expr, other: str) -> Iterator[Edit]:
    """Yield a file with another operator between two operands, where nothing but the operator stands there."""
    start, end = source.end(left), source.start(right)
    between = source.text(start, end)
    if re.fullmatch(r" *(?:[<>=!+\-*/%]+|not in|is not|in|is|and|or) *", between):
        yield left.end_lineno or left.lineno, source.replaced(start, end, f" {other} ")


def _comparison(source: Source, node: ast.AST) -> Iterator[Edit]:
    if isinstance(node, ast.Compare):
        operands = pairwise([node.left, *node.comparators])
        for operator, (left, right) in zip(node.ops, operands, strict=True):
            yield from _operator(source, left, right, _COMPARED[type(operator)])


def _arithmetic(source: Source, node: ast.AST) -> Iterator[Edit]:
    if isinstance(node, ast.BinOp) and type(node.op) in _ARITHMETIC and not _is_text(node.left):
        yield from _operator(source, node.left, node.right, _ARITHMETIC[type(node.op)])


def _connective(source: Source, node: ast.AST) -> Iterator[Edit]:
    if isinstance(node, ast.BoolOp):
        other = "or" if isinstance(node.op, ast.And) else "and"
        for left, right in pairwise(node.values):
            yield from _operator(source, left, right, other)


def _off_by_one(source: Source, node: ast.AST) -> Iterator[Edit]:
    if isinstance(node, ast.Constant) and type(node.value) is int and re.fullmatch(r"\d+", source.of(node)):
        yield node.lineno, source.with_node(node, str(node.value + 1))


def _removed_branch(source: Source, node: ast.AST) -> Iterator[Edit]:
    """Yield a file without an `if` that has no `else`."""
    if isinstance(node, ast.If) and not node.orelse and source.of(node).startswith("if"):
        yield node.lineno, source.with_node(node, "pass")


def _negated_condition(source: Source, node: ast.AST) -> Iterator[Edit]:
    if isinstance(node, ast.If | ast.IfExp | ast.While):
        test = node.test
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            yield test.lineno, source.with_node(test, source.of(test.operand))
        elif isinstance(test, ast.Name | ast.Attribute | ast.Call | ast.Subscript):
            yield test.lineno, source.with_node(test, f"not {source.of(test)}")


def _wrong_default(source: Source, node: ast.AST) -> Iterator[Edit]:
    if isinstance(node, _Function):
        for default in (*node.args.defaults, *filter(None, node.args.kw_defaults)):
            if isinstance(default, ast.Constant) and (other := _other_value(default.value)):
                yield default.lineno, source.with_node(default, other)


def _other_value(value: object) -> str | None:
    if isinstance(value, bool):
        return str(not value)
    if isinstance(value, int):
        return str(value + 1)
    return "None" if isinstance(value, str) else None


def _swapped_arguments(source: Source, node: ast.AST) -> Iterator[Edit]:
    if isinstance(node, ast.Call) and not any(isinstance(argument, ast.Starred) for argument in node.args):
        for first, second in pairwise(node.args):
            between = source.text(source.end(first), source.start(second))
            swapped = source.of(second) + between + source.of(first)
            if re.fullmatch(r"\s*,\s*", between) and source.of(first) != source.of(second):
                yield first.lineno, source.replaced(source.start(first), source.end(second), swapped)


def _other_function(source: Source, node: ast.AST) -> Iterator[Edit]:
    if isinstance(node, ast.Call):
        name = node.func.attr if isinstance(node.func, ast.Attribute) else node.func.id if isinstance(node.func, ast.Name) else ""
        end = source.end(node.func)
        if other := _OTHER_NAME.get(name):
            yield node.lineno, source.replaced(end - len(name), end, other)


def _lost_result(source: Source, node: ast.AST) -> Iterator[Edit]:
    if isinstance(node, ast.Return) and node.value is not None and source.of(node.value) != "None":
        yield node.lineno, source.with_node(node, "return None")


def _lost_statement(source: Source, node: ast.AST) -> Iterator[Edit]:
    if isinstance(node, ast.AugAssign) or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)):
        yield node.lineno, source.with_node(node, "pass")


def _other_jump(source: Source, node: ast.AST) -> Iterator[Edit]:
    if isinstance(node, ast.Break | ast.Continue):
        yield node.lineno, source.with_node(node, "continue" if isinstance(node, ast.Break) else "break")


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))


_KINDS: dict[str, Callable[[Source, ast.AST], Iterator[Edit]]] = {
    "swapped comparison": _comparison,
    "wrong operator": _arithmetic,
    "swapped connective": _connective,
    "off by one": _off_by_one,
    "removed branch": _removed_branch,
    "negated condition": _negated_condition,
    "wrong default": _wrong_default,
    "swapped arguments": _swapped_arguments,
    "wrong function": _other_function,
    "lost result": _lost_result,
    "lost statement": _lost_statement,
    "wrong jump": _other_jump,
}
KINDS = tuple(_KINDS)
