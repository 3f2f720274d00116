"""Compute the digest of the source that a step runs: its own text, the modules of the names that it uses, and their imports.

The source itself is analysed, so there is no separate list that can become outdated. Code that runs without an import is named by a
string with its name only: a module, as in `[sys.executable, "-m", "clawpipe.play.workers"]`; an object in one, as in
`"clawpipe.model.engines.embedded:EmbeddedEngine"`; or all modules of a package, as in `"clawpipe.learn.training.trainers.*"`.
"""

from __future__ import annotations

import ast
import importlib.metadata
import importlib.util
import inspect
import sysconfig
import textwrap
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any, TypeGuard

from clawpipe.core.basics.syntax import parse, undisturbed
from clawpipe.core.store.digests import canonical, sha256_json, sha256_once
from clawpipe.moved import new_name

FIRST_PARTY = ("clawpipe", "tasks", "flows", "data_contracts")
# Libraries that compute or write results, so that another version is another step. Libraries for settings, progress, serving and
# orchestration change no result.
COMPUTING = (
    *("torch", "transformers", "peft", "accelerate", "tokenizers", "bitsandbytes", "torchao", "gguf"),
    *("duckdb", "pyarrow", "numpy", "rensa"),
)


def code_digest(module: str) -> str:
    """Digest of the first-party source that `module` reaches, of the SQL and YAML files beside it, and of the computing libraries'
    versions."""
    return _digest([module], {})


def function_digest(function: Callable[..., Any]) -> str:
    """Return the digest of a function: of its own text and the names that it uses, not of the rest of its module.

    Raises:
        TypeError: the function uses a module-level value without a canonical form.
    """
    return _function_digest(function)


@cache
def _function_digest(function: Callable[..., Any]) -> str:
    texts, modules = _read(function)
    return _digest(modules, texts)


def file_digest(file: Path) -> str:
    """Return the digest of a user's file and of the modules that it imports, except for installed libraries."""
    files, first_party, todo = {}, set(), [file.resolve()]
    while todo:
        here = todo.pop()
        if here not in files:
            files[here] = sha256_once(here)
            names = set(_imports(_parse(here)))
            first_party |= {name for name in names if _is_first_party(name)}
            todo += [found for name in names - first_party if (found := _local(name, here.parent))]
    return _digest(first_party, {"files": sorted((path.name, digest) for path, digest in files.items())})


def reached_modules(function: Callable[..., Any]) -> frozenset[str]:
    """Return the first-party modules that a function reaches."""
    return _closures(_read(function)[1])


@cache
def import_closure(module: str) -> frozenset[str]:
    """Return the first-party modules reached from `module` by import or as a child process, including itself, but not by relative
    imports.
    """
    seen: set[str] = set()
    todo = [module]
    while todo:
        name = todo.pop()
        if name not in seen and _is_first_party(name) and _origin(name):
            seen.add(name)
            todo += _imported(name)
    return frozenset(seen)


def _digest(modules: Iterable[str], own: dict[str, object]) -> str:
    modules = set(modules)
    reached = modules | _closures(modules)
    files = sorted({file for name in reached for file in _source_files(name)})
    libraries = sorted({library for name in reached for library in _libraries(name)})
    return sha256_json([own, [(file.name, sha256_once(file)) for file in files], [(name, _version(name)) for name in libraries]])


def _closures(modules: Iterable[str]) -> frozenset[str]:
    return frozenset().union(*map(import_closure, modules))


@cache
def _imported(name: str) -> frozenset[str]:
    origin = _origin(name)
    return frozenset(_imports(parse(origin.read_bytes()))) if origin else frozenset()


@cache
def _libraries(name: str) -> set[str]:
    """Return the computing libraries that a module belongs to or imports."""
    names = {name, *_imported(name)} if _is_first_party(name) else {name}
    return {top for name in names if (top := name.partition(".")[0]) in COMPUTING}


@cache
def _version(library: str) -> str | None:
    """Return the version of a library; None if it is not installed."""
    try:
        return importlib.metadata.version(library)
    except importlib.metadata.PackageNotFoundError:
        return None


def _read(function: Callable[..., Any]) -> tuple[dict[str, object], set[str]]:
    """Return the texts and values that a function uses from its module, by name, and the modules of all other names."""
    texts: dict[str, object] = {}
    modules: set[str] = set()
    todo: list[FunctionType | type] = [inspect.unwrap(function)]  # pyright: ignore[reportAssignmentType]
    while todo:
        piece = todo.pop()
        if piece.__qualname__ in texts:
            continue
        tree = _bare(piece)
        texts[piece.__qualname__] = ast.unparse(tree)
        modules |= set(_imports(tree))
        for name, value in _used(tree, piece):
            if isinstance(value, FunctionType | type) and value.__module__ == piece.__module__:
                todo.append(value)
            elif module := _home(value):
                modules.add(module)
            else:
                texts[name] = canonical(value)
    return texts, modules


def _bare(piece: FunctionType | type) -> ast.AST:
    """Return a definition without decorators, parameter annotations and docstring, which change no result."""
    tree: Any = parse(textwrap.dedent(undisturbed(lambda: inspect.getsource(piece)))).body[0]
    tree.decorator_list = []
    if isinstance(tree, ast.FunctionDef):
        tree.returns = None
        for argument in (*tree.args.posonlyargs, *tree.args.args, *tree.args.kwonlyargs):
            argument.annotation = None
    if ast.get_docstring(tree, clean=False) is not None:
        tree.body = tree.body[1:] or [ast.Pass()]
    return tree


def _used(tree: ast.AST, piece: FunctionType | type) -> Iterator[tuple[str, Any]]:
    """Return the module-level and enclosing names that a definition loads, with their values, without built-ins."""
    scope: dict[str, object] = {}
    if isinstance(piece, FunctionType):
        scope = piece.__globals__ | dict(inspect.getclosurevars(piece).nonlocals)
    elif module := inspect.getmodule(piece):
        scope = vars(module)
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}
    yield from ((name, scope[name]) for name in sorted(names) if name in scope)


def _home(value: Any) -> str | None:
    """Return the module that a value comes from; None for a plain value."""
    return value.__name__ if isinstance(value, ModuleType) else getattr(value, "__module__", None)


def _imports(tree: ast.AST) -> Iterator[str]:
    """Yield the names of modules and objects that are imported anywhere in the source, and modules of child processes."""
    todo: list[ast.AST] = [tree]
    while todo:
        node = todo.pop()
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            module = node.module or ""
            yield from filter(None, (module, *(f"{module}.{alias.name}".strip(".") for alias in node.names)))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield from _named(node.value)
        todo += node.orelse if _only_for_types(node) else ast.iter_child_nodes(node)


def _only_for_types(node: ast.AST) -> TypeGuard[ast.If]:
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


def _named(text: str) -> Iterator[str]:
    """Yield the first-party modules that a text names, if it is only a name."""
    text, _, member = text.partition(":")
    package = text.removesuffix(".*")
    if not (text.isascii() and all(part.isidentifier() for part in (*package.split("."), member or "_"))):
        return
    if not (_is_first_party(package) and "." in package):
        return
    yield package
    yield f"{package}.__main__"  # runs for a package; a module has none
    if package != text and (origin := _origin(package)):
        yield from (f"{package}.{file.stem}" for file in sorted(origin.parent.glob("*.py")) if file.stem != "__init__")


def _is_first_party(name: str) -> bool:
    return name.partition(".")[0] in FIRST_PARTY


def _parse(file: Path) -> ast.AST:
    try:
        return parse(file.read_bytes())
    except (SyntaxError, ValueError):
        return ast.Module([], [])  # importing it will report the error


def _local(name: str, folder: Path) -> Path | None:
    """Return the file of a module in the user's folder, or elsewhere on the path outside of installed libraries."""
    beside = next((file for file in _files(folder.joinpath(*name.split("."))) if file.is_file()), None)
    origin = beside or _origin(name)
    return origin if origin and (beside or not _is_installed(origin.resolve())) else None


def _is_installed(file: Path) -> bool:
    standard = sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib")
    return bool({"site-packages", "dist-packages"} & set(file.parts)) or any(map(file.is_relative_to, standard))


@cache
def _origin(name: str) -> Path | None:
    """Find the file of a module without importing its parents; None if it is not a module."""
    top, *rest = (new_name(name) or name).split(".")
    try:
        spec = importlib.util.find_spec(top)
    except (ImportError, ValueError):
        return None
    if spec is None or spec.origin is None:
        return None
    found = Path(spec.origin)
    candidates = _files(found.parent.joinpath(*rest)) if rest else (found,)
    return next((file for file in candidates if file.suffix == ".py" and file.is_file()), None)


def _files(place: Path) -> tuple[Path, Path]:
    return place / "__init__.py", place.with_name(f"{place.name}.py")


@cache
def _source_files(name: str) -> list[Path]:
    """Return a module's file and, for a package, its data files (SQL, YAML), without the release number."""
    origin = _origin(name)
    if origin is None or name == "clawpipe":
        return []
    data = origin.parent.rglob("*") if origin.name == "__init__.py" else ()
    return [origin, *(file for file in data if file.suffix in {".sql", ".yaml"})]
