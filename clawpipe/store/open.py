"""The store of a home, alone or before one that several homes share."""

from __future__ import annotations

import os

from clawpipe.store.artifacts import Store
from clawpipe.store.home import Home
from clawpipe.store.remote import VARIABLE, Remote


def open_store(home: Home) -> Store:
    """The artefacts of a home: those of its directory, and with `CLAWPIPE_STORE` those at that URL, which the directory caches."""
    url = os.environ.get(VARIABLE)
    return Store(home.store, Remote(url) if url else None)
