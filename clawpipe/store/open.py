"""Open the store of a home, with or without a shared store."""

from __future__ import annotations

from clawpipe.store.artifacts import Store
from clawpipe.store.home import Home
from clawpipe.store.machines import store_url
from clawpipe.store.remote import Remote


def open_store(home: Home) -> Store:
    """Return the store of a home; with a shared store it is a cache of that one."""
    url = store_url()
    return Store(home.store, Remote(url) if url else None)
