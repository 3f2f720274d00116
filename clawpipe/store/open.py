"""Open the store of a home, with or without a shared store."""

from __future__ import annotations

import os

from clawpipe.store.artifacts import Store
from clawpipe.store.home import Home
from clawpipe.store.remote import VARIABLE, Remote


def open_store(home: Home) -> Store:
    """Return the store of a home; with `CLAWPIPE_STORE` it is a cache of the shared store at that URL."""
    url = os.environ.get(VARIABLE)
    return Store(home.store, Remote(url) if url else None)
