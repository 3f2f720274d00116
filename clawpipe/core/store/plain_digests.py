"""Compute digests of bytes, files and plain JSON: what needs no settings and no refs."""

from __future__ import annotations

import hashlib
import json
from functools import cache
from pathlib import Path
from typing import Any


def sha256_bytes(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def sha256_file(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sha256_once(path: Path) -> str:
    """Compute the sha256 of a file, cached in this process while its size and change time stay the same.

    A change time is the kernel's own: whoever writes to a file can set back when it was modified, but not this.
    """
    stat = path.stat()
    return _sha256_of(str(path), stat.st_size, stat.st_ctime_ns)


@cache
def _sha256_of(path: str, size: int, changed: int) -> str:
    return sha256_file(Path(path))


def plain_json(value: Any) -> bytes:
    """Return plain JSON as its one text: keys sorted, no spaces."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()


def sha256_plain(value: Any) -> str:
    return sha256_bytes(plain_json(value))
