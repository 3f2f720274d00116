"""The source that a step runs: its own text, the modules behind the names that it uses, and all that those import.

It is read from the source itself, so no list beside the code can fall behind it. What runs without being imported is named by a
string that is nothing but its name: a module, as in `[sys.executable, "-m", "clawpipe.workers.worker"]`; a thing in one, as in
`"clawpipe.engines.embedded:EmbeddedEngine"`; or all modules of a package, as in `"clawpipe.training.trainers.*"`.
"""

from __future__ import annotations

import ast
import importlib.metadata
import importlib.util
import inspect
import sysconfig
import textwrap
import threading
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any, TypeGuard

from clawpipe.store.digests import canonical, sha256_file, sha256_json

FIRST_PARTY = ("clawpipe", "tasks", "flows", "data_contracts")
# Libraries that compute or write what a step makes, so that another version is another step. Those that read settings, show
# progress, serve or orchestrate change no result.
COMPUTING = (
    *("torch", "transformers", "peft", "trl", "accelerate", "tokenizers", "bitsandbytes", "torchao", "gguf"),
    *("duckdb", "pyarrow", "numpy", "rensa"),
)
# CPython 3.11 counts recursion in ast.parse for all threads together: two at once may raise SystemError.
_ONE_PARSER = threading.Lock()


def code_digest(module: str) -> str:
    """Digest of the first-party source that `module` reaches, of the SQL and YAML files beside it, and of the computing libraries'
    versions."""
    return _digest([module], {})


def function_digest(function: Callable[..., Any]) -> str:
    """The same of a function: of its own text and of what it uses, never of what else its module holds.

    Raises:
        TypeError: it uses a module-level value that has no canonical form.
    """
    texts, modules = _read(function)
    return _digest(modules, texts)


def file_digest(file: Path) -> str:
    """The same of a user's file: with the modules that it imports, as long as they are no installed library's."""
    files, first_party, todo = {}, set(), [file.resolve()]
    while todo:
        here = todo.pop()
        if here not in files:
            files[here] = sha256_file(here)
            names = set(_imports(_parse(here)))
            first_party |= {name for name in names if _is_first_party(name)}
            todo += [found for name in names - first_party if (found := _local(name, here.parent))]
    return _digest(first_party, {"files": sorted((path.name, digest) for path, digest in files.items())})


def reached_modules(function: Callable[..., Any]) -> frozenset[str]:
    """First-party modules that a function reaches."""
    return _closures(_read(function)[1])


def import_closure(module: str) -> frozenset[str]:
    """First-party modules reached from `module` by import or as a child process, itself included. Relative imports are not seen."""
    with _ONE_PARSER:
        return _closure(module)


def _digest(modules: Iterable[str], own: dict[str, Any]) -> str:
    modules = set(modules)
    reached = modules | _closures(modules)
    files = sorted({file for name in reached for file in _source_files(name)})
    libraries = sorted({library for name in reached for library in _libraries(name)})
    return sha256_json([own, [(file.name, sha256_file(file)) for file in files], [(name, _version(name)) for name in libraries]])


def _closures(modules: Iterable[str]) -> frozenset[str]:
    return frozenset().union(*map(import_closure, modules))


@cache
def _closure(module: str) -> frozenset[str]:
    seen: set[str] = set()
    todo = [module]
    while todo:
        name = todo.pop()
        if name not in seen and _is_first_party(name) and _origin(name):
            seen.add(name)
            todo += _imported(name)
    return frozenset(seen)


@cache
def _imported(name: str) -> frozenset[str]:
    origin = _origin(name)
    return frozenset(_imports(ast.parse(origin.read_bytes()))) if origin else frozenset()


def _libraries(name: str) -> set[str]:
    """Computing libraries that a module is of, or imports."""
    names = {name, *_imported(name)} if _is_first_party(name) else {name}
    return {top for name in names if (top := name.partition(".")[0]) in COMPUTING}


def _version(library: str) -> str | None:
    """None for an optional one that is not installed."""
    try:
        return importlib.metadata.version(library)
    except importlib.metadata.PackageNotFoundError:
        return None


def _read(function: Callable[..., Any]) -> tuple[dict[str, Any], set[str]]:
    """Texts and values of a function and of what stands beside it that it uses, by name; and the modules of everything else."""
    texts: dict[str, Any] = {}
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
    """A definition without decorators, annotations of parameters and docstring: what it says about itself changes no result."""
    with _ONE_PARSER:
        tree: Any = ast.parse(textwrap.dedent(inspect.getsource(piece))).body[0]
    tree.decorator_list = []
    if isinstance(tree, ast.FunctionDef):
        tree.returns = None
        for argument in (*tree.args.posonlyargs, *tree.args.args, *tree.args.kwonlyargs):
            argument.annotation = None
    if ast.get_docstring(tree, clean=False) is not None:
        tree.body = tree.body[1:] or [ast.Pass()]
    return tree


def _used(tree: ast.AST, piece: FunctionType | type) -> Iterator[tuple[str, Any]]:
    """Module-level and enclosing names that a definition loads, with their values; built-in ones are none."""
    scope: dict[str, Any] = {}
    if isinstance(piece, FunctionType):
        scope = piece.__globals__ | dict(inspect.getclosurevars(piece).nonlocals)
    elif module := inspect.getmodule(piece):
        scope = vars(module)
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}
    yield from ((name, scope[name]) for name in sorted(names) if name in scope)


def _home(value: Any) -> str | None:
    """The module that a value comes from; None for a plain value."""
    return value.__name__ if isinstance(value, ModuleType) else getattr(value, "__module__", None)


def _imports(tree: ast.AST) -> Iterator[str]:
    """Names of modules, or of things in them, that are imported anywhere in the source, and those of child processes."""
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
    """The modules that a text stands for, if it is the name of first-party ones and nothing else."""
    text, _, member = text.partition(":")
    package = text.removesuffix(".*")
    if not (text.isascii() and all(part.isidentifier() for part in (*package.split("."), member or "_"))):
        return
    if not (_is_first_party(package) and "." in package):
        return
    yield package
    yield f"{package}.__main__"  # of a package, it is this that runs; of a module, there is none
    if package != text and (origin := _origin(package)):
        yield from (f"{package}.{file.stem}" for file in sorted(origin.parent.glob("*.py")) if file.stem != "__init__")


def _is_first_party(name: str) -> bool:
    return name.partition(".")[0] in FIRST_PARTY


def _parse(file: Path) -> ast.AST:
    with _ONE_PARSER:
        try:
            return ast.parse(file.read_bytes())
        except (SyntaxError, ValueError):
            return ast.Module([], [])  # whoever imports it says so


def _local(name: str, folder: Path) -> Path | None:
    """The file of a module that lies in the user's folder, or elsewhere on the path without being an installed library's."""
    beside = next((file for file in _files(folder.joinpath(*name.split("."))) if file.is_file()), None)
    origin = beside or _origin(name)
    return origin if origin and (beside or not _is_installed(origin.resolve())) else None


def _is_installed(file: Path) -> bool:
    standard = sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib")
    return bool({"site-packages", "dist-packages"} & set(file.parts)) or any(map(file.is_relative_to, standard))


def _origin(name: str) -> Path | None:
    """The file of a module, found without importing any of its parents; None for what is no module."""
    top, *rest = name.split(".")
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


def _source_files(name: str) -> list[Path]:
    """A module's file and, for a package, the data files that it ships (SQL, YAML); the release's number is no source."""
    origin = _origin(name)
    if origin is None or name == "clawpipe":
        return []
    data = origin.parent.rglob("*") if origin.name == "__init__.py" else ()
    return [origin, *(file for file in data if file.suffix in {".sql", ".yaml"})]
