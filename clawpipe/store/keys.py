"""The key of a step: what it reads, how it is set, and the source it reaches. Nothing volatile."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from clawpipe.store.digests import canonical, code_digest, library_versions, sha256_json


def step_key(name: str, inputs: Mapping[str, Any], module: str, libraries: Iterable[str] = ()) -> str:
    """`<name>-<40 hex digits>`.

    Args:
        name: the step's name.
        inputs: refs (their digests count, not their paths), settings as pydantic models, plain JSON.
        module: the module that does the work; its first-party import closure is part of the key.
        libraries: distributions whose version changes the result.
    """
    body = {
        "step": name,
        "inputs": {key: canonical(value) for key, value in sorted(inputs.items())},
        "code": code_digest(module),
        "libraries": library_versions(libraries),
    }
    return f"{name}-{sha256_json(body)[:40]}"
