"""The id of a home, which tells homes of several machines apart."""

from __future__ import annotations

import uuid

from clawpipe.store.files import exclusive, write_atomic
from clawpipe.store.home import Home


def home_id(home: Home) -> str:
    """Return the home's id, 12 hex digits; drawn and written on first use."""
    path = home.root / "id"
    if not path.exists():
        with exclusive(home.locks / "id.lock", "the id of this home", wait=True):
            if not path.exists():
                write_atomic(path, f"{uuid.uuid4().hex[:12]}\n".encode())
    return path.read_text(encoding="ascii").strip()
