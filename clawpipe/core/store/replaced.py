"""Record replacements of artifacts, after rows were forgotten or small files joined. An old digest then refers to the new artifact.

`store/replaced.json` holds {"old digest": "new digest"}; a replaced artifact may be replaced again. With a shared store, the
file is a cache: the shared store decides the replacement for all homes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from clawpipe.core.store.artifacts import Store
from clawpipe.core.store.files import exclusive, write_atomic
from clawpipe.errors import DataError

_FILE, _LOCK = "replaced.json", ".replaced.lock"


def current_digest(store: Store, digest: str) -> str:
    """Return the digest that `digest` refers to now: itself if it was not replaced.

    Raises:
        DataError: the file is damaged.
    """
    return successor(replaced(store), digest)


def successor(taken: Mapping[str, str], digest: str) -> str:
    """Return the last replacement of `digest`."""
    seen = {digest}
    while (following := taken.get(digest, digest)) not in seen:
        seen.add(following)
        digest = following
    return digest


def replaced(store: Store) -> dict[str, str]:
    """Return new digests by old ones.

    Raises:
        DataError: the file is damaged.
    """
    known = _noted(store)
    shared = store.remote.replaced(known) if store.remote is not None else {}
    if shared:
        _add(store, shared)
    return shared | known


def _noted(store: Store) -> dict[str, str]:
    path = store.root / _FILE
    try:
        found = json.loads(path.read_bytes())
    except FileNotFoundError:
        return {}
    except ValueError as error:
        raise _damaged(path, error) from None
    if not (isinstance(found, dict) and all(isinstance(new, str) for new in found.values())):
        raise _damaged(path, "it maps no digest to a digest")
    return found


def note_replaced(store: Store, taken: Mapping[str, str]) -> None:
    """Record replacements {old digest: new digest}, after the new artifacts are complete."""
    remote = store.remote
    _add(store, taken if remote is None else {old: remote.replace(old, new) for old, new in sorted(taken.items())})


def _add(store: Store, taken: Mapping[str, str]) -> None:
    with exclusive(store.root / _LOCK, "the list of what was replaced", wait=True):
        known = _noted(store) | dict(taken)
        write_atomic(store.root / _FILE, json.dumps(known, indent=1, sort_keys=True).encode())


def _damaged(path: Path, why: object) -> DataError:
    fix = "restore it from a copy; without it, settings that name what was replaced have to be changed by hand"
    return DataError(f"the list of what was replaced is damaged: {why}", str(path), fix)
