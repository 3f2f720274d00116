"""Files of SQLite that several write."""

from __future__ import annotations

import gc
import sqlite3
import threading
from contextlib import closing

import pytest

from clawpipe.core.store.sqlite import closed_with, open_shared


def test_those_who_make_a_file_at_once_all_open_it(tmp_path):
    """About one in a hundred was told "database is locked" at once, whatever the timeout."""
    opened, errors, barrier = [], [], threading.Barrier(4, timeout=60)

    def make(path):
        barrier.wait()
        try:
            with closing(open_shared(path)) as database:
                opened.append(database.execute("pragma journal_mode").fetchone())
        except Exception as error:
            errors.append(error)

    for number in range(300):
        threads = [threading.Thread(target=make, args=(tmp_path / str(number) / "a.sqlite",)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert errors == []
    assert opened == [("wal",)] * 1200


class Holder:
    """An object that holds a database for as long as it lives."""


def test_a_database_is_closed_with_the_object_that_holds_it(tmp_path):
    holder, database = Holder(), open_shared(tmp_path / "a.sqlite")
    closed_with(holder, database)
    assert database.execute("select 1").fetchone() == (1,)
    del holder
    gc.collect()
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        database.execute("select 1")
