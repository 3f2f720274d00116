"""Open the store of a home, with or without a shared store."""

from __future__ import annotations

import os

from clawpipe.core.store.artifacts import Store
from clawpipe.core.store.home import Home
from clawpipe.core.store.machines import VARIABLE as SHARED
from clawpipe.core.store.machines import store_url
from clawpipe.core.store.remote import VARIABLE as STORE
from clawpipe.core.store.remote import Remote


def open_store(home: Home) -> Store:
    """Return the store of a home; with a shared store it is a cache of that one."""
    url = store_url()
    return Store(home.store, Remote(url, STORE if os.environ.get(STORE) else SHARED) if url else None)
