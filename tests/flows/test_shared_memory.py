"""What is imported, forgotten and decided on one machine of a home is known on the others."""

from __future__ import annotations

import dataclasses
import json
from contextlib import ExitStack
from pathlib import Path

import pytest

from clawpipe.core.config import NightConfig
from clawpipe.core.ledger import lease as lease_module
from clawpipe.core.ledger.lease import lease
from clawpipe.core.store.datasets import dataset_ref
from clawpipe.core.store.files import InUseError
from clawpipe.core.store.home import Home
from clawpipe.core.store.home_file import ChangedError
from clawpipe.core.store.machines import VARIABLE, shared_objects
from clawpipe.core.store.objects import Objects
from clawpipe.core.store.open import open_store
from clawpipe.data.forgotten.subject import Subject
from clawpipe.data.forgotten.tombstones import Tombstone, Tombstones, known_tombstones, read_tombstones, write_tombstones
from clawpipe.data.ingest.compaction import compact_imports
from clawpipe.data.ingest.intake import run as run_module
from clawpipe.data.ingest.intake.options import Options
from clawpipe.data.ingest.intake.run import ingest
from clawpipe.data.ingest.intake.state import ingesting, load, log_file, save
from clawpipe.errors import BusyError, ConfigError
from clawpipe.record.nights.machines import hold_machines
from clawpipe.record.removal.forget import forget
from clawpipe.record.reviews.decisions import DecidedError, Decision
from clawpipe.record.reviews.open import decisions_file, last_decisions, open_decisions
from clawpipe.record.reviews.shared import SharedDecisions
from flows.datasets import named_datasets

NEW = NightConfig.model_validate({"trajectories": ["new"], "rollouts": None, "rounds": 1, "train": {"method": "sft"}})
ALL = NEW.model_copy(update={"trajectories": ("all",)})


everywhere = pytest.mark.parametrize("url", ["s3", "file"], indirect=True)  # elsewhere a shared disk will do


@pytest.fixture
def url(request, tmp_path) -> str:
    on_s3 = getattr(request, "param", "file") == "s3"
    return f"s3://{request.getfixturevalue('bucket')}/home" if on_s3 else f"file://{tmp_path}/shared"


@pytest.fixture
def machines(url, tmp_path, monkeypatch) -> tuple[Home, Home]:
    monkeypatch.setenv(VARIABLE, url)
    return Home(tmp_path / "one"), Home(tmp_path / "two")


@pytest.fixture
def file(tmp_path) -> Path:
    path = tmp_path / "chats.jsonl"
    path.write_text(line("s1", "ann", "Where do I live?") + line("s2", "ben", "What time is it?"))
    return path


def line(session: str, user: str, text: str) -> str:
    messages = [{"role": "user", "content": text}, {"role": "assistant", "content": f"You said: {text}"}]
    return json.dumps({"messages": messages, "session_id": session, "user": user}) + "\n"


def rows(home: Home, path: Path, **options: str) -> int:
    return ingest(home, [str(path)], Options(**options)).datasets["trajectories"].rows


@everywhere
def test_an_import_of_one_machine_is_new_on_the_other(machines, file):
    one, two = machines
    assert rows(one, file) == 2
    [digest] = named_datasets(two, NEW)["trajectories"]
    assert digest in [found for _, found in open_store(two).names()]
    again = ingest(two, [str(file)], Options())
    assert (again.reading.lines, len(again.skipped)) == (0, 1)
    with file.open("a") as grown:
        grown.write(line("s3", "cleo", "Who am I?"))
    assert rows(two, file) == 1
    assert named_datasets(one, ALL) == named_datasets(two, ALL)
    assert len(named_datasets(one, ALL)["trajectories"]) == 2


@everywhere
def test_what_one_machine_forgets_comes_back_on_none(machines, file, tmp_path):
    one, two = machines
    rows(one, file)
    rows(two, file)
    [found] = forget(two, Subject(user="ann"))
    assert found.trajectories == 1
    assert known_tombstones(one).stones == ()  # until it asks
    assert read_tombstones(one) == known_tombstones(one) == read_tombstones(two)
    assert len(named_datasets(one, ALL)["trajectories"]) == 1
    copy = tmp_path / "copy.jsonl"
    copy.write_text(file.read_text())
    done = ingest(one, [str(copy)], Options(policy_version="p1"))
    assert (done.accepted, done.refused) == (1, {"forgotten": 1})


def test_two_who_forget_something_are_both_heard(machines, file):
    one, two = machines
    rows(one, file)
    forget(one, Subject(user="ann"))
    forget(two, Subject(user="ben"))
    assert all(read_tombstones(one).covers(None, name) for name in ("ann", "ben"))
    store = open_store(one)
    assert [dataset_ref(store, "trajectories", digest).rows for digest in named_datasets(one, ALL)["trajectories"]] == [0]


def test_nobody_forgets_while_another_machine_is_at_work(machines, file, monkeypatch):
    monkeypatch.setattr(lease_module, "_RENEW_SECONDS", 0.05)
    one, two = machines
    rows(one, file)
    shared = shared_objects()
    assert shared
    with lease(shared, "leases/tonight"), pytest.raises(InUseError, match="the night tonight is run by process"):
        forget(two, Subject(user="ann"))
    with ingesting(one), pytest.raises(InUseError, match="ingest into this home is run by process"):
        forget(two, Subject(user="ann"))
    with ingesting(one), pytest.raises(BusyError):
        compact_imports(two)
    with ExitStack() as locks:
        hold_machines(one, locks)
        with pytest.raises(InUseError, match="a removal of data is run by process"):
            forget(two, Subject(user="ann"))
    assert read_tombstones(two).stones == ()
    assert forget(two, Subject(user="ann"))[0].trajectories == 1


def test_an_import_that_lost_its_lease_takes_no_mark_away(machines, file):
    """As one does that was halted for longer than others wait."""
    one, two = machines
    log = log_file(one, Options().name)
    late = load(log)
    rows(two, file)
    with pytest.raises(ChangedError, match="run the command again"):
        save(log, late)
    assert len(named_datasets(one, ALL)["trajectories"]) == 1


@everywhere
def test_decisions_of_two_machines_are_one_log(machines):
    one, two = map(open_decisions, machines)
    first = one.decide("a", "approved", "ann", seen=0)
    with pytest.raises(DecidedError, match="approved by ann at "):
        two.decide("a", "rejected", "bob", seen=0)
    second = two.decide("a", "rejected", "bob", seen=first.number, reason="no")
    other = one.decide("b", "edited", "ann", seen=0, turn=0, text="four\nlines")
    assert [first.number, second.number, other.number] == [1, 2, 3]
    assert one.history("a") == [first, second]
    assert last_decisions(machines[1]) == {"a": second, "b": other}
    assert two.remove(["a"]) == 2
    assert one.every() == [other]


def test_what_a_machine_knew_before_it_shared_its_home_is_kept(machines, file, url, monkeypatch):
    one, two = machines
    monkeypatch.delenv(VARIABLE)
    rows(one, file)
    forget(one, Subject(user="ben"))
    made = open_decisions(one).decide("a", "approved", "ann", seen=0)
    monkeypatch.setenv(VARIABLE, url)
    assert last_decisions(one) == {"a": made}
    assert not decisions_file(one).exists()
    [digest] = named_datasets(one, NEW)["trajectories"]
    assert last_decisions(two) == {"a": made}
    assert named_datasets(two, NEW)["trajectories"] == (digest,)
    assert ingest(two, [str(file)], Options(policy_version="p")).refused == {}
    assert read_tombstones(one).covers(None, "ben")
    assert ingest(two, [str(file)], Options(policy_version="q")).refused == {"forgotten": 1}
    assert Objects(url).folders("ingest")


def test_a_second_home_is_not_mixed_with_the_shared_one(machines, file, url, monkeypatch):
    one, two = machines
    monkeypatch.delenv(VARIABLE)
    forget(two, Subject(user="ben"))
    open_decisions(two).decide("b", "approved", "bob", seen=0)
    monkeypatch.setenv(VARIABLE, url)
    rows(one, file)
    forget(one, Subject(user="ann"))
    SharedDecisions(one).decide("a", "approved", "ann", seen=0)
    with pytest.raises(ConfigError, match="this machine remembers something else"):
        read_tombstones(two)
    with pytest.raises(ConfigError, match="not those of the shared home"):
        open_decisions(two)
    assert decisions_file(two).exists()


def test_decisions_that_two_machines_bring_at_once_are_not_lost(machines, monkeypatch):
    """The later one overwrote what the earlier one had brought in between."""
    one, two = machines
    decision = Decision(number=1, row_id="row", verdict="approved", by="ann", at="2026-11-26", reason="", turn=None, text=None)
    other = dataclasses.replace(decision, row_id="other")
    first, second = SharedDecisions(one), SharedDecisions(two)
    read = second.every()
    first.bring([decision], "one")
    monkeypatch.setattr(second, "every", lambda: read)
    with pytest.raises(ConfigError, match="not those of the shared home"):
        second.bring([other], "two")
    assert [found.row_id for found in first.every()] == ["row"]


def test_an_import_ends_if_somebody_was_forgotten_meanwhile(machines, file, monkeypatch):
    """A machine that was halted stored the rows of a user who was forgotten in the meantime."""
    one, two = machines
    forgotten = read_tombstones(two)

    def meanwhile(point: str, *_: object) -> None:
        if point == "ingest.before_memory":
            write_tombstones(two, forgotten.with_stone(stone(forgotten)))

    monkeypatch.setattr(run_module.faults, "kill_point", meanwhile)
    with pytest.raises(BusyError, match="somebody was forgotten"):
        rows(one, file)
    assert load(log_file(two, Options().name)).datasets == {}


def stone(stones: Tombstones) -> Tombstone:
    digest = stones.digest("user", "ann")
    return Tombstone(kind="user", digest=digest, date="2026-11-26", trajectories=0, replaced={}, models=())


def test_sweeps_of_before_keep_their_own_tombstones(machines, monkeypatch):
    one, _ = machines
    (one.root / "sweeps" / "s-1" / "home-0").mkdir(parents=True)
    monkeypatch.delenv(VARIABLE)
    forget(one, Subject(user="ann"))
    monkeypatch.setenv(VARIABLE, f"file://{one.root.parent}/shared")
    forget(one, Subject(user="ben"))
    of_sweep = known_tombstones(Home(one.root / "sweeps" / "s-1" / "home-0"))
    assert len(of_sweep.stones) == len(read_tombstones(one).stones) == 2
