"""Read the records of finished steps: one JSON file for each step, named by its key.

Prefect writes them, and would return a record although its artifacts are gone. So a key has generations, `KEY`, `KEY.r1`, `KEY.r2`
...: a damaged record, or one with damaged artifacts, is skipped and never overwritten. Records are read here without Prefect, and
only in the form of clawpipe's steps, because Prefect's reader imports any class that a record names.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import chain, count
from pathlib import Path

from clawpipe.store.artifacts import Store
from clawpipe.store.home import Home
from clawpipe.store.open import open_store
from clawpipe.store.refs import AnyRef, ModelRef, StepResult

Holds = Callable[[StepResult], bool]

_RESULT_CLASS = f"{StepResult.__module__}.{StepResult.__qualname__}"


def find_record(home: Home, key: str, holds: Holds | None = None) -> StepResult | None:
    """Return the kept result of the step with this key (its first generation); None if the step would run."""
    return live_record(home.steps, key, open_store(home), holds)[1]


def live_record(directory: Path, key: str, store: Store, holds: Holds | None = None) -> tuple[str, StepResult | None]:
    """Find the first generation with a valid record, else the first without a record.

    Args:
        directory: the directory of the records.
        key: the key of the first generation.
        store: the store with the artifacts of the records.
        holds: a further check of a result, outside of the store.

    Returns:
        the generation's key, and its result; None if the step has to run.
    """
    for generation in chain([key], (f"{key}.r{number}" for number in count(1))):
        try:
            data = (directory / generation).read_bytes()
        except FileNotFoundError:
            return generation, None
        result = parse_record(data)
        if result is not None and all(map(store.intact, result.refs())) and (holds is None or holds(result)):
            return generation, result
    raise AssertionError("unreachable: generations never end")


def parse_record(data: bytes) -> StepResult | None:
    """Read the step result of a record file; None if the file is anything else."""
    try:
        record = json.loads(data)
        serializer, result = record["metadata"]["serializer"], json.loads(record["result"])
        if serializer["type"] != "json" or result["__class__"] != _RESULT_CLASS:
            return None
        return StepResult.model_validate(result["data"])
    except (ValueError, TypeError, KeyError):  # truncated, not JSON, or of another shape (pydantic's error is a ValueError)
        return None


def drop_dead_records(home: Home) -> int:
    """Remove the records of steps without any generation whose artifacts all exist. Returns the number of removed records.

    A dead generation before a living one stays: without it the living one would never be reached.
    """
    store, generations = open_store(home), _generations(home.steps)
    dead = [
        path for paths in generations.values() if not any(_names_what_is_there(store, path) for path in paths) for path in paths
    ]
    for path in dead:
        path.unlink()
    return len(dead)


def _generations(directory: Path) -> dict[str, list[Path]]:
    """Return the record files by the key of their first generation."""
    found: dict[str, list[Path]] = {}
    for path in sorted(directory.glob("[!.]*")):
        if path.is_file():
            found.setdefault(path.name.partition(".r")[0], []).append(path)
    return found


def _names_what_is_there(store: Store, path: Path) -> bool:
    """Whether all artifacts of a result exist; their bytes are not checked, the night will do that."""
    result = parse_record(path.read_bytes())
    return result is not None and all(not _is_stored(ref) or store.has(ref) for ref in result.refs())


def _is_stored(ref: AnyRef) -> bool:
    return not isinstance(ref, ModelRef) or ref.stored
