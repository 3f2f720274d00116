"""Compute digests of values and files."""

from __future__ import annotations

import hashlib
import json
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from clawpipe.json_types import JsonObject
from clawpipe.store.refs import AnyRef, ModelRef


def sha256_bytes(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def sha256_file(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sha256_once(path: Path) -> str:
    """Compute the sha256 of a file, cached in this process while its size and change time stay the same.

    A change time is the kernel's own: whoever writes to a file can set back when it was modified, but not this.
    """
    stat = path.stat()
    return _sha256_of(str(path), stat.st_size, stat.st_ctime_ns)


@cache
def _sha256_of(path: str, size: int, changed: int) -> str:
    return sha256_file(Path(path))


def canonical(value: Any) -> Any:
    """Return the canonical JSON value of a value. A ref becomes its digest, without its parents and place.

    One set of weights can be several policies, so tool-call format and precision are included.
    """
    if isinstance(value, ModelRef):
        return {"$ref": value.digest, "policy": value.policy_version, "dtype": value.dtype}
    if isinstance(value, AnyRef):
        return {"$ref": value.digest}
    if isinstance(value, BaseModel):
        return canonical_as(value, type(value)) if is_block(type(value)) else canonical(value.model_dump(mode="json"))
    if isinstance(value, dict):
        return {str(key): canonical(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [canonical(item) for item in value]
    if value is None or isinstance(value, str | int | float | bool):
        return value
    raise TypeError(f"no canonical form for {type(value).__name__}: pass a ref, a pydantic model or plain JSON")


def is_block(kind: type) -> bool:
    """Whether a class is a block of settings, which marks the settings that can change a result (see clawpipe.config.block)."""
    return issubclass(kind, BaseModel) and hasattr(kind, "result_fields")


def canonical_as(value: Any, declared: type[BaseModel]) -> JsonObject:
    """Return the canonical form of a block of settings, limited to the fields of its declared class."""
    fields = [name for name in declared.model_fields if name in value.result_fields()]
    plain = value.model_dump(mode="json", include=set(fields))
    return {name: canonical(inner if is_block(type(inner := getattr(value, name))) else plain[name]) for name in fields}


def canonical_json(value: Any) -> bytes:
    return json.dumps(canonical(value), sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()


def sha256_json(value: Any) -> str:
    return sha256_bytes(canonical_json(value))
