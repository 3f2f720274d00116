"""The key of a step: what it reads, how it is set, and the source it reaches. Nothing volatile."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from clawpipe.store.digests import canonical, code_digest, library_versions, sha256_json


def step_key(name: str, inputs: Mapping[str, Any], modules: str | Sequence[str], libraries: Iterable[str] = ()) -> str:
    """`<name>-<40 hex digits>`.

    Args:
        name: the step's name.
        inputs: refs (their digests count, not their paths), settings as pydantic models, plain JSON.
        modules: the module that does the work, or several where a child process does a part; the closures of their
            first-party imports are part of the key.
        libraries: distributions whose version changes the result.
    """
    body = {
        "step": name,
        "inputs": {key: canonical(value) for key, value in sorted(inputs.items())},
        "code": [code_digest(module) for module in ([modules] if isinstance(modules, str) else modules)],
        "libraries": library_versions(libraries),
    }
    return f"{name}-{sha256_json(body)[:40]}"


def part_key(key: str, *inputs: Any) -> str:
    """The key of one of many things that are made in the same way: what they share, source included, is read once for `key`."""
    return f"{key.rpartition('-')[0]}-{sha256_json([key, inputs])[:40]}"
