"""Ledgers that homes share: in SQLite, on a shared disk, in memory and on S3 (moto's server)."""

from __future__ import annotations

import errno
import os
import sqlite3
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest
from pydantic import BaseModel

from clawpipe.core.ledger import lease as lease_module
from clawpipe.core.ledger.database import DatabaseLedger
from clawpipe.core.ledger.lease import lease
from clawpipe.core.ledger.objects import ObjectLedger
from clawpipe.core.store.files import InUseError
from clawpipe.core.store.objects import Objects
from clawpipe.errors import BusyError, ConfigError, DataError, NotFoundError

each = pytest.mark.parametrize("storage", ["sqlite", "s3", "file", "memory"], indirect=True)
# fsspec looks whether an object of memory exists, and then writes it: two threads may both create one.
each_atomic = pytest.mark.parametrize("storage", ["sqlite", "s3", "file"], indirect=True)


class Note(BaseModel):
    text: str


@pytest.fixture
def storage(request, tmp_path):
    """Opens one ledger, each time as another home would."""
    if request.param == "sqlite":
        sqlite3.connect(tmp_path / "mlflow.db").close()
        return lambda: DatabaseLedger(f"sqlite:///{tmp_path}/mlflow.db")
    url = {"file": f"file://{tmp_path}/share", "memory": f"memory://{tmp_path.name}"}.get(request.param)
    url = url or f"s3://{request.getfixturevalue('bucket')}/prefix"
    return lambda: ObjectLedger(url, "CLAWPIPE_LEDGER")


def texts(ledger, log="notes"):
    return [note.text for note in ledger.read(log, Note).entries]


@each
def test_entries_stay_in_their_order(storage):
    one, other = storage(), storage()
    assert one.read("notes", Note).entries == []
    for number in range(12):
        (one, other)[number % 2].append("notes", Note(text=f"{number}"))
    assert texts(one) == texts(other) == [f"{number}" for number in range(12)]
    assert texts(one, "others") == []


@each
def test_homes_agree_on_the_name_of_a_ledger(storage):
    assert storage().identity() == storage().identity()


@each
def test_a_pending_entry_counts_once_it_is_settled(storage):
    one, other = storage(), storage()
    one.begin("notes", "agent", "a", Note(text="a"), after=0)
    assert other.read("notes", Note).entries == []
    assert other.read("notes", Note).pending == [Note(text="a")]
    other.settle("notes", "agent", "a", Note(text="a"))
    assert texts(one) == ["a"]
    assert one.read("notes", Note).pending == []
    with pytest.raises(BusyError, match="another home has ended"):
        one.settle("notes", "agent", "a", Note(text="a"))


@each
def test_a_cancelled_entry_is_gone(storage):
    one = storage()
    one.begin("notes", "agent", "a", Note(text="a"), after=0)
    one.cancel("notes", "agent", "a")
    assert one.read("notes", Note).pending == []
    one.begin("notes", "agent", "a", Note(text="again"), after=0)
    one.settle("notes", "agent", "a", Note(text="again"))
    assert texts(one) == ["again"]


@each
def test_an_entry_decided_on_an_older_log_is_refused(storage):
    one, other = storage(), storage()
    end = one.read("notes", Note).end
    other.append("notes", Note(text="first"))
    with pytest.raises(BusyError, match="another home has changed"):
        one.begin("notes", "agent", "late", Note(text="late"), after=end)
    assert texts(one) == ["first"]


@each_atomic
def test_one_holds_the_lock(storage):
    inside = []

    def work(number):
        for _ in range(3):
            with storage().lock("registry"):
                inside.append(number)
                storage().append("notes", Note(text=f"{number}"))
                assert inside == [number]
                inside.remove(number)

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(work, range(2)))
    assert len(texts(storage())) == 6


def test_a_lease_of_the_dead_is_taken_over(tmp_path, monkeypatch):
    objects = Objects(f"memory://{tmp_path.name}")
    objects.create("locks/registry/00000004", b"killed")
    objects.put("locks/registry/00000004.alive", b"7")
    monkeypatch.setattr(lease_module, "STILL_SECONDS", 0.1)
    with lease(objects, "locks/registry"):
        held = objects.names("locks/registry")
        assert "00000005" in held
        assert "00000004" not in held
    assert "00000005.ended" in objects.names("locks/registry")


def test_who_does_not_wait_is_told_who_holds_the_lease(tmp_path, monkeypatch):
    objects = Objects(f"file://{tmp_path}")
    monkeypatch.setattr(lease_module, "_RENEW_SECONDS", 0.05)
    with lease(objects, "leases/night"), pytest.raises(InUseError, match=f"the night is run by process {os.getpid()} on"):
        lease(objects, "leases/night", "the night").__enter__()
    with lease(objects, "leases/night", "the night"):
        pass


def test_a_lease_goes_on_once_a_storage_takes_the_keys_again(tmp_path, monkeypatch):
    objects, renewed, put = Objects(f"file://{tmp_path}"), threading.Event(), Objects.put
    refusals = iter([ConfigError("the storage refuses"), OSError(errno.ENOSPC, "full")])

    def refusing(self, path, data):
        if refusal := next(refusals, None):
            raise refusal
        put(self, path, data)
        renewed.set()

    monkeypatch.setattr(lease_module, "_RENEW_SECONDS", 0.01)
    monkeypatch.setattr(Objects, "put", refusing)
    with lease(objects, "locks/registry"):
        assert renewed.wait(10)


def test_a_lease_that_others_have_cleared_away_is_not_taken(tmp_path):
    objects = Objects(f"memory://{tmp_path.name}")
    objects.create("locks/registry/00000006", b"holder")
    assert not lease_module._take(objects, "locks/registry", 5)
    assert objects.names("locks/registry") == ["00000006"]


def test_a_lease_is_of_one_of_two_with_one_name(tmp_path, monkeypatch):
    """Containers may share host name and process number; and a storage that lost its answer is asked again, and says: it exists."""
    objects, create = Objects(f"file://{tmp_path}"), Objects.create
    assert lease_module._take(objects, "locks/registry", 5)
    assert not lease_module._take(objects, "locks/registry", 5)

    def lost(self, path, data):
        create(self, path, data)
        return False

    monkeypatch.setattr(Objects, "create", lost)
    assert lease_module._take(objects, "locks/registry", 6)
    assert not lease_module._take(objects, "locks/registry", 6)


def test_nothing_is_written_before_the_registry(tmp_path):
    ledger = DatabaseLedger(f"sqlite:///{tmp_path}/mlflow.db")
    assert ledger.read("notes", Note).entries == []
    with pytest.raises(NotFoundError, match="does not exist yet"):
        ledger.append("notes", Note(text="a"))
    assert not (tmp_path / "mlflow.db").exists()


def test_a_database_of_its_own_is_created(tmp_path):
    DatabaseLedger(f"sqlite:///{tmp_path}/ledger.db", registry=False).append("notes", Note(text="a"))
    assert texts(DatabaseLedger(f"sqlite:///{tmp_path}/ledger.db")) == ["a"]


def test_a_damaged_row_is_said(tmp_path):
    sqlite3.connect(tmp_path / "mlflow.db").close()
    ledger = DatabaseLedger(f"sqlite:///{tmp_path}/mlflow.db")
    ledger.append("notes", Note(text="a"))
    with closing(sqlite3.connect(tmp_path / "mlflow.db")) as connection, connection:
        connection.execute("update clawpipe_ledger set entry = '{'")
    with pytest.raises(DataError, match="entry 0 of notes is damaged"):
        texts(ledger)


def test_a_database_that_is_none_is_said(tmp_path):
    (tmp_path / "mlflow.db").write_bytes(b"no database" * 100)
    with pytest.raises(DataError, match="not a database"):
        texts(DatabaseLedger(f"sqlite:///{tmp_path}/mlflow.db"))


def test_a_group_that_shares_a_database_shares_its_lock(tmp_path):
    folder = tmp_path / "group"
    folder.mkdir()
    folder.chmod(0o770)
    with DatabaseLedger(f"sqlite:///{folder}/mlflow.db").lock("registry"):
        assert (folder / "mlflow.db.registry.lock").stat().st_mode & 0o777 == 0o660
