"""The file for node_exporter's textfile collector: outside the home, which is its owner's alone, and readable by all users."""

from __future__ import annotations

import os
import uuid
from contextlib import suppress
from pathlib import Path

from clawpipe.core.store.home import Home
from clawpipe.errors import ConfigError

_MODE = 0o644  # whatever the umask
_ELSEWHERE = "name a file elsewhere, such as /var/lib/prometheus/node-exporter/clawpipe.prom"


def require_place(home: Home, file: str) -> None:
    """Fail before a night does any work.

    Raises:
        ConfigError: the file would lie in the home, or its directory is none that can be written to.
    """
    directory = Path(file).parent
    if directory.resolve().is_relative_to(home.root):
        raise ConfigError(f"{file} lies in the home", "metrics.textfile", _ELSEWHERE)
    if not os.access(directory, os.W_OK | os.X_OK) or not directory.is_dir():
        raise ConfigError(f"{directory} is no directory that can be written to", "metrics.textfile", _ELSEWHERE)


def write_textfile(file: str, text: bytes) -> None:
    """Replace the file at once, so that nobody reads half of it.

    Raises:
        OSError: it cannot be written.
    """
    path = Path(file)
    hidden = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        hidden.write_bytes(text)
        hidden.chmod(_MODE)
        os.replace(hidden, path)
    finally:
        with suppress(OSError):
            hidden.unlink()
