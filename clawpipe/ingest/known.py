"""Names of rows that earlier runs have stored, 8 bytes each, whatever their rows hold."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from clawpipe.contracts.reasons import identifier
from clawpipe.store.artifacts import Store
from clawpipe.store.digests import sha256_bytes
from clawpipe.store.duck import session


class Known:
    """The values of one column, or those of several with a line feed between them, as sorted 64-bit digests."""

    def __init__(self, store: Store, files: Sequence[Path], *columns: str) -> None:
        self._names = np.empty(0, np.uint64)
        if files:
            value = f"concat_ws(chr(10), {', '.join(map(identifier, columns))})"
            query = f"select ('0x' || sha256({value})[:16])::ubigint as name from read_parquet($files)"
            with session(store, files) as duck:
                found = duck.execute(query, {"files": [str(file) for file in files]}).fetchnumpy()
            self._names = np.sort(next(iter(found.values())))

    def count(self, name: str) -> int:
        """How many rows have this name."""
        if not self._names.size:
            return 0
        value = np.uint64(short(name))
        return int(np.searchsorted(self._names, value, "right") - np.searchsorted(self._names, value, "left"))

    def __contains__(self, name: str) -> bool:
        return self.count(name) > 0


def short(name: str) -> int:
    return int(sha256_bytes(name.encode())[:16], 16)
