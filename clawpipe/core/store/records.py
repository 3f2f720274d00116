"""Read the records of finished steps: one JSON file for each step, named by its key.

Prefect writes them, and would return a record although its artifacts are gone. So a key has generations, `KEY`, `KEY.r1`, `KEY.r2`
...: a damaged record, or one with damaged artifacts, is skipped and never overwritten. Records are read here without Prefect, and
only in the form of clawpipe's steps, because Prefect's reader imports any class that a record names.

Where machines share a home, each record is also an object that the others find, see `clawpipe.core.store.machines`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from itertools import chain, count
from pathlib import Path

from clawpipe.core.store.artifacts import Store
from clawpipe.core.store.files import write_atomic
from clawpipe.core.store.home import Home
from clawpipe.core.store.machines import shared_objects
from clawpipe.core.store.objects import Objects
from clawpipe.core.store.open import open_store
from clawpipe.core.store.refs import AnyRef, ModelRef, StepResult
from clawpipe.errors import BusyError

Holds = Callable[[StepResult], bool]

_SHARED = "steps"
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
    shared = shared_objects()
    for generation in _generations_of(key):
        data = _read(directory / generation, shared)
        if data is None:
            return generation, None
        result = parse_record(data)
        if result is not None and all(map(store.intact, result.refs())) and (holds is None or holds(result)):
            return generation, result
    raise AssertionError("unreachable: generations never end")


def _generations_of(key: str) -> Iterator[str]:
    return chain([key], (f"{key}.r{number}" for number in count(1)))


def _read(path: Path, shared: Objects | None) -> bytes | None:
    """Read a record; one that another machine has made is fetched. None if there is none, or the storage does not answer."""
    with suppress(FileNotFoundError):
        return path.read_bytes()
    if shared is None:
        return None
    with suppress(BusyError):
        if data := shared.get(f"{_SHARED}/{path.name}"):
            write_atomic(path, data)
            return data
    return None


def share_records(home: Home, key: str) -> None:
    """Let the other machines of the home find the records of a step that has ended, if there are any.

    Args:
        key: the key of the first generation.

    Raises:
        BusyError, ConfigError: the storage cannot be reached.
    """
    shared = shared_objects()
    if shared is None:
        return
    for generation in _generations_of(key):
        path = home.steps / generation
        if not path.exists():
            return
        shared.create(f"{_SHARED}/{generation}", path.read_bytes())


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
    store = open_store(home)
    dead = _dead(store, {path.name: path.read_bytes() for path in home.steps.glob("[!.]*") if path.is_file()})
    for name in dead:
        (home.steps / name).unlink()
    if shared := shared_objects():
        for name in _dead(store, shared.all_in(_SHARED)):
            shared.drop(f"{_SHARED}/{name}")
    return len(dead)


def _dead(store: Store, records: Mapping[str, bytes]) -> list[str]:
    """Return the names of the records of steps without any generation whose artifacts all exist."""
    steps: dict[str, list[str]] = {}
    for name in sorted(records):
        steps.setdefault(name.partition(".r")[0], []).append(name)
    alive = [any(_names_what_is_there(store, records[name]) for name in names) for names in steps.values()]
    return [name for names, lives in zip(steps.values(), alive, strict=True) if not lives for name in names]


def _names_what_is_there(store: Store, record: bytes) -> bool:
    """Whether all artifacts of a result exist; their bytes are not checked, the night will do that."""
    result = parse_record(record)
    return result is not None and all(not _is_stored(ref) or store.has(ref) for ref in result.refs())


def _is_stored(ref: AnyRef) -> bool:
    return not isinstance(ref, ModelRef) or ref.stored
