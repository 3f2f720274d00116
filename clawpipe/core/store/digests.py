"""Compute digests of values and files."""

from __future__ import annotations

from dataclasses import is_dataclass
from typing import Any

from pydantic import BaseModel

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.core.store.plain_digests import plain_json
from clawpipe.core.store.plain_digests import sha256_bytes as sha256_bytes
from clawpipe.core.store.plain_digests import sha256_file as sha256_file
from clawpipe.core.store.plain_digests import sha256_once as sha256_once
from clawpipe.core.store.refs import AnyRef, ModelRef


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
    if is_dataclass(value) and not isinstance(value, type):
        return canonical(vars(value))
    if isinstance(value, dict):
        return {str(key): canonical(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [canonical(item) for item in value]
    if value is None or isinstance(value, str | int | float | bool):
        return value
    raise TypeError(f"no canonical form for {type(value).__name__}: pass a ref, a pydantic model, a dataclass or plain JSON")


def is_block(kind: type) -> bool:
    """Whether a class is a block of settings, which marks the settings that can change a result (see `config.block`)."""
    return issubclass(kind, BaseModel) and hasattr(kind, "result_fields")


def canonical_as(value: Any, declared: type[BaseModel]) -> JsonObject:
    """Return the canonical form of a block of settings, limited to the fields of its declared class."""
    fields = [name for name in declared.model_fields if name in value.result_fields()]
    plain = value.model_dump(mode="json", include=set(fields))
    return {name: canonical(inner if _holds_blocks(inner := getattr(value, name)) else plain[name]) for name in fields}


def _holds_blocks(value: Any) -> bool:
    """Whether a value is a block of settings, or a list of them."""
    return bool(value) and all(map(_holds_blocks, value)) if isinstance(value, list | tuple) else is_block(type(value))


def canonical_json(value: Any) -> bytes:
    return plain_json(canonical(value))


def sha256_json(value: Any) -> str:
    return sha256_bytes(canonical_json(value))
