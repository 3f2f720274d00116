"""Digests of values, files and source code."""

from __future__ import annotations

import ast
import hashlib
import importlib.metadata
import importlib.util
import json
import threading
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from clawpipe.store.refs import AnyRef, ModelRef

FIRST_PARTY = ("clawpipe", "tasks", "flows", "data_contracts")
# CPython 3.11 counts recursion in ast.parse for all threads together: two at once may raise SystemError.
_ONE_PARSER = threading.Lock()


def sha256_bytes(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def sha256_file(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def canonical(value: Any) -> Any:
    """A JSON value with one spelling. A ref becomes its digest: where it came from and where it lies do not matter.

    One set of weights is several policies: how calls are written and in what precision it runs are told apart as well.
    """
    if isinstance(value, ModelRef):
        return {"$ref": value.digest, "policy": value.policy_version, "dtype": value.dtype}
    if isinstance(value, AnyRef):
        return {"$ref": value.digest}
    if isinstance(value, BaseModel):
        return canonical(value.model_dump(mode="json"))
    if isinstance(value, dict):
        return {str(key): canonical(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [canonical(item) for item in value]
    if value is None or isinstance(value, str | int | float | bool):
        return value
    raise TypeError(f"no canonical form for {type(value).__name__}: pass a ref, a pydantic model or plain JSON")


def canonical_json(value: Any) -> bytes:
    return json.dumps(canonical(value), sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()


def sha256_json(value: Any) -> str:
    return sha256_bytes(canonical_json(value))


def code_digest(module: str) -> str:
    """Digest of the first-party source that `module` reaches by import, and of the SQL and YAML files beside it."""
    files = sorted({file for name in import_closure(module) for file in _source_files(name)})
    return sha256_json([(file.name, sha256_file(file)) for file in files])


def import_closure(module: str) -> frozenset[str]:
    """First-party modules reached from `module` by static imports, itself included. Relative and dynamic imports are not seen."""
    with _ONE_PARSER:
        return _closure(module)


@cache
def _closure(module: str) -> frozenset[str]:
    seen: set[str] = set()
    todo = [module]
    while todo:
        name = todo.pop()
        if name not in seen and name.split(".")[0] in FIRST_PARTY and _origin(name):
            seen.add(name)
            todo += _imports(name)
    return frozenset(seen)


def library_versions(names: Iterable[str]) -> dict[str, str]:
    """Installed versions of libraries whose upgrade changes results; they belong in the key of the steps that use them."""
    return {name: importlib.metadata.version(name) for name in sorted(names)}


def _imports(name: str) -> Iterator[str]:
    origin = _origin(name)
    assert origin is not None
    for node in ast.walk(ast.parse(origin.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _origin(name: str) -> Path | None:
    """The file of a module, found without importing any of its parents; None for what is no module."""
    top, *rest = name.split(".")
    spec = importlib.util.find_spec(top)
    if spec is None or spec.origin is None:
        return None
    place = Path(spec.origin).parent.joinpath(*rest)
    candidates = (place / "__init__.py", place.with_name(f"{place.name}.py"))
    return next((file for file in candidates if file.is_file()), None)


def _source_files(name: str) -> list[Path]:
    """A module's file and, for a package, the data files it ships (SQL, YAML): they are source too."""
    origin = _origin(name)
    if origin is None:
        return []
    data = origin.parent.rglob("*") if origin.name == "__init__.py" and name != "clawpipe" else ()
    return [origin, *(file for file in data if file.suffix in {".sql", ".yaml"})]
