"""The secret of a home, which its servers ask for: only users who can read the file can use the servers."""

from __future__ import annotations

import os
import re
import secrets
import tempfile
from pathlib import Path

from clawpipe.core.store.files import exclusive
from clawpipe.core.store.home import Home
from clawpipe.errors import DataError

_USER = "clawpipe"
_WHOLE = re.compile(rf"{_USER}:[\w-]{{43}}")


def secret_file(home: Home) -> Path:
    return home.root / "secret"


def home_secret(home: Home) -> str:
    """Return `user:password`, the form of Prefect's auth string and of basic authentication; created on first use.

    It is passed on through the environment only, because every user of the machine can read a process's arguments.

    Raises:
        DataError: the file holds something else.
    """
    path = secret_file(home)
    if not path.exists():
        with exclusive(home.locks / "secret.lock", "the secret of this home", wait=True):
            if not path.exists():
                _make(path)
    found = path.read_text(encoding="utf-8", errors="replace").strip()
    if not _WHOLE.fullmatch(found):
        raise DataError("this is not the secret that clawpipe wrote", str(path), "delete the file: a new one is created")
    return found


def _make(path: Path) -> None:
    handle, staging = tempfile.mkstemp(dir=path.parent, prefix=".secret.")  # created unreadable for others
    with open(handle, "w", encoding="utf-8") as file:
        file.write(f"{_USER}:{secrets.token_urlsafe(32)}\n")
        file.flush()
        os.fsync(handle)
    os.replace(staging, path)
