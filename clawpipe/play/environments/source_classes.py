"""Read the classes of a Python file from its source, with what they inherit from files beside it and from clawpipe.

Nothing is imported.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import clawpipe
from clawpipe.core.basics.syntax import parse
from clawpipe.moved import new_name

_FUNCTION = (ast.FunctionDef, ast.AsyncFunctionDef)


@dataclass(frozen=True)
class SourceClass:
    """A class as its source describes it, with what it inherits.

    Attributes:
        constants: attributes that are strings, of the class or set in `__init__`.
        members: names of what it has: methods, and attributes of the class or set in `__init__`.
        abstract: names of methods that only a subclass defines.
        whole: whether the source of all that it inherits has been found.
    """

    name: str
    summary: str
    constants: Mapping[str, str]
    members: frozenset[str]
    abstract: frozenset[str]
    whole: bool


def classes_of(file: Path) -> list[SourceClass]:
    """Return the classes that a file defines, in its order; none if it does not parse."""
    module = _Module(file)
    return [module.read(name) for name in module.definitions]


@dataclass
class _Module:
    """A file with the classes that it defines and the names that it imports."""

    file: Path
    _reading: set[str] = field(default_factory=set[str])  # classes, so that one that inherits from itself ends

    @cached_property
    def _tree(self) -> ast.Module:
        try:
            return parse(self.file.read_bytes())
        except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
            return ast.Module([], [])

    @cached_property
    def definitions(self) -> dict[str, ast.ClassDef]:
        return {node.name: node for node in self._tree.body if isinstance(node, ast.ClassDef)}

    @cached_property
    def _imported(self) -> dict[str, str]:
        """The dotted name that each imported name stands for; of a relative import, from the file's folder on."""
        found = {}
        for node in self._tree.body:
            if isinstance(node, ast.Import):
                found |= {one.asname or one.name: one.name for one in node.names}
            elif isinstance(node, ast.ImportFrom):
                found |= {one.asname or one.name: f"{node.module}.{one.name}" if node.module else one.name for one in node.names}
        return found

    def read(self, name: str) -> SourceClass:
        """Return a class that this file defines."""
        node = self.definitions[name]
        self._reading.add(name)
        bases = [self._base(base) for base in node.bases]
        self._reading.discard(name)
        constants: dict[str, str] = {}
        members, abstract = frozenset[str](), frozenset[str]()
        for base in filter(None, reversed(bases)):
            constants |= base.constants
            members, abstract = members | base.members, abstract | base.abstract
        own, own_abstract = frozenset(_members(node)), frozenset(_abstract(node))
        return SourceClass(
            name,
            (ast.get_docstring(node) or "").partition("\n")[0],
            constants | dict(_constants(node)),
            members | own,
            (abstract - own) | own_abstract,
            all(base is not None and base.whole for base in bases),
        )

    def _base(self, expression: ast.expr) -> SourceClass | None:
        """Return the class that a base names; None where its source is not found."""
        dotted = ast.unparse(expression.value if isinstance(expression, ast.Subscript) else expression)
        if dotted in self.definitions:
            return self.read(dotted) if dotted not in self._reading else None
        head, _, rest = dotted.partition(".")
        known = self._imported.get(dotted) or (f"{self._imported[head]}.{rest}" if head in self._imported else dotted)
        module, _, name = known.rpartition(".")
        file = self._file_of(module) if module else None
        other = _Module(file) if file and file != self.file else None
        return other.read(name) if other and name in other.definitions else None

    def _file_of(self, module: str) -> Path | None:
        """Return the file of a module: one beside this file, or one of clawpipe's."""
        inside = (new_name(module) or module).split(".")
        places = [self.file.parent.joinpath(*inside)]
        if inside[0] == clawpipe.__name__:
            places.insert(0, Path(clawpipe.__file__).parent.joinpath(*inside[1:]))
        files = [file for place in places for file in (place.with_suffix(".py"), place / "__init__.py")]
        return next((file for file in files if file.is_file()), None)


def _members(node: ast.ClassDef) -> Iterator[str]:
    for statement in node.body:
        if isinstance(statement, _FUNCTION) and not _is_abstract(statement):
            yield statement.name
    for name, _ in _assigned(node):
        yield name


def _abstract(node: ast.ClassDef) -> Iterator[str]:
    return (statement.name for statement in node.body if isinstance(statement, _FUNCTION) and _is_abstract(statement))


def _is_abstract(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    return any(ast.unparse(decorator).rpartition(".")[2] == "abstractmethod" for decorator in function.decorator_list)


def _constants(node: ast.ClassDef) -> Iterator[tuple[str, str]]:
    """Yield the attributes that are string constants."""
    for name, value in _assigned(node):
        if isinstance(value, ast.Constant) and isinstance(value.value, str):
            yield name, value.value


def _assigned(node: ast.ClassDef) -> Iterator[tuple[str, ast.expr]]:
    """Yield what the body of a class assigns, and what its `__init__` assigns to `self`."""
    for statement in node.body:
        for target, value in _assignments(statement):
            if isinstance(target, ast.Name):
                yield target.id, value
    for statement in node.body:
        if isinstance(statement, ast.FunctionDef) and statement.name == "__init__":
            for target, value in (pair for inner in ast.walk(statement) for pair in _assignments(inner)):
                if isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name):
                    yield target.attr, value


def _assignments(node: ast.AST) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Yield each target of an assignment with its value; those of tuples of equal length one by one."""
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    value = getattr(node, "value", None)
    for target in targets:
        if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
            yield from zip(target.elts, value.elts, strict=True)
        elif value is not None:
            yield target, value
