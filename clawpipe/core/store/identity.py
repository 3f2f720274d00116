"""The id of a home, which tells homes of several machines apart."""

from __future__ import annotations

import uuid

from clawpipe.core.store.files import exclusive, write_atomic
from clawpipe.core.store.home import Home
from clawpipe.core.store.machines import shared_objects

_ID = "id"


def home_id(home: Home) -> str:
    """Return the home's id, 12 hex digits; drawn and written on first use, by the first of the machines that share it."""
    path = home.root / "id"
    if not path.exists():
        with exclusive(home.locks / "id.lock", "the id of this home", wait=True):
            if not path.exists():
                write_atomic(path, _drawn())
    return path.read_text(encoding="ascii").strip()


def _drawn() -> bytes:
    mine, shared = f"{uuid.uuid4().hex[:12]}\n".encode(), shared_objects()
    return mine if shared is None or shared.create(_ID, mine) else shared.get(_ID) or mine
