"""Compute the cache key of a step from its inputs, its settings and its source."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from clawpipe.core.store.digests import canonical, sha256_json


def step_key(name: str, inputs: Mapping[str, Any], code: str) -> str:
    """Return the key `<name>-<40 hex digits>`.

    Args:
        name: the step's name.
        inputs: refs (their digests count, not their paths), settings as pydantic models, plain JSON.
        code: digest of the source that does the work, see clawpipe.core.store.source.
    """
    body = {"step": name, "inputs": {key: canonical(value) for key, value in sorted(inputs.items())}, "code": code}
    return f"{name}-{sha256_json(body)[:40]}"


def part_key(key: str, *inputs: Any) -> str:
    """Return the key of one of many parts; `key` covers what they share, including the source."""
    return f"{key.rpartition('-')[0]}-{sha256_json([key, inputs])[:40]}"
