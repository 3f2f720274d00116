"""What several machines of one home share, below the URL in `CLAWPIPE_SHARED`; all else in the home is scratch of one machine.

id                      the home's id
store/...               artifacts, see clawpipe.core.store.remote
steps/<key>             records of finished steps
nights/<night>/...      what a night settled when it began, and how it ended
leases/<night>/...      which machine runs a night
locks/...               who ingests, and who removes data
ingest/<log>/<n>        what was read of each file; see clawpipe.core.store.home_file, as of the next two
forgotten.json/<n>      tombstones of what was forgotten
reviews/.../<n>         what people decided about rows
ledger/...              moves and looks, see clawpipe.core.ledger; in the registry's database where there is one
"""

from __future__ import annotations

import os

from clawpipe.core.store.objects import Objects, is_conditional
from clawpipe.core.store.remote import VARIABLE as STORE
from clawpipe.errors import ConfigError

VARIABLE = "CLAWPIPE_SHARED"


def shared_objects() -> Objects | None:
    """Return the objects that the machines of this home share; None where the home is of one machine.

    Raises:
        ConfigError: the storage is not known to keep the first of two writers' objects.
    """
    url = os.environ.get(VARIABLE)
    if not url:
        return None
    if not is_conditional(url):
        raise ConfigError("machines share a home in a storage with conditional writes", VARIABLE, "set it to s3:// or file:///")
    return Objects(url, VARIABLE)


def store_url() -> str | None:
    """Return the URL of the shared store; None where artifacts lie in the home alone."""
    if url := os.environ.get(STORE):
        return url
    shared = os.environ.get(VARIABLE)
    return f"{shared.rstrip('/')}/store" if shared else None
