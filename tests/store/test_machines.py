"""Two machines of one home, each with a directory of its own: what one has recorded, the other finds."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest

from clawpipe.core.ledger.objects import ObjectLedger
from clawpipe.core.store.datasets import publish_dataset
from clawpipe.core.store.home import Home
from clawpipe.core.store.home_file import HomeFile
from clawpipe.core.store.identity import home_id
from clawpipe.core.store.machines import VARIABLE, shared_objects
from clawpipe.core.store.open import open_store
from clawpipe.core.store.records import drop_dead_records, find_record, share_records
from clawpipe.core.store.refs import StepResult
from clawpipe.core.store.remote import Remote
from clawpipe.errors import ConfigError

TABLE = pa.table({"number": [1, 2, 3]})


@pytest.fixture
def machines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Home, Home]:
    monkeypatch.setenv(VARIABLE, f"file://{tmp_path}/shared")
    return Home(tmp_path / "one"), Home(tmp_path / "two")


def recorded(home: Home, key: str, result: StepResult) -> StepResult:
    home.steps.mkdir(parents=True, exist_ok=True)
    body = {"__class__": "clawpipe.core.store.refs.StepResult", "data": result.model_dump(mode="json")}
    record = {"metadata": {"serializer": {"type": "json"}}, "result": json.dumps(body)}
    (home.steps / key).write_text(json.dumps(record))
    share_records(home, key)
    return result


def test_a_step_of_one_machine_is_done_on_the_other(machines):
    one, two = machines
    made = recorded(one, "curate-1", StepResult(output=publish_dataset(open_store(one), "samples", [TABLE])))
    assert find_record(two, "curate-1") == made
    assert open_store(two).has(made.output)
    assert find_record(two, "curate-2") is None


def test_a_record_whose_artifact_is_gone_leaves_the_storage(machines):
    one, two = machines
    gone = recorded(one, "curate-1", StepResult(output=publish_dataset(open_store(one), "samples", [TABLE])))
    kept = recorded(one, "curate-2", StepResult(rows_in=3))
    open_store(one).remove(gone.output)
    assert drop_dead_records(one) == 1
    assert find_record(two, "curate-1") is None
    assert not (two.steps / "curate-1").exists()
    assert find_record(two, "curate-2") == kept


def test_machines_have_the_id_that_the_first_of_them_drew(machines):
    one, two = machines
    assert home_id(one) == home_id(two) == home_id(one)


def test_a_storage_without_conditional_writes_is_refused(monkeypatch):
    monkeypatch.setenv(VARIABLE, "gs://bucket/home")
    with pytest.raises(ConfigError, match="conditional writes"):
        shared_objects()


def test_without_the_variable_nothing_is_shared(machines, monkeypatch):
    one, two = machines
    monkeypatch.delenv(VARIABLE)
    recorded(one, "score-1", StepResult(rows_in=3))
    assert find_record(two, "score-1") is None
    assert home_id(one) != home_id(two)


def test_what_is_written_though_the_answer_was_lost_counts_once(machines, monkeypatch):
    """S3's client asks again where no answer comes, and is told that the object exists."""
    create = Remote._create

    def lost(self, source, target):
        create(self, source, target)
        return create(self, source, target)

    monkeypatch.setattr(Remote, "_create", lost)
    file = HomeFile(machines[0], "forgotten.json")
    file.write(b"one")
    file.write(b"two")
    assert HomeFile(machines[1], "forgotten.json").read() == b"two"
    ledger = ObjectLedger(f"{shared_objects().url}/ledger", VARIABLE)
    ledger.begin("moves", "agent", "first", StepResult(rows_in=1), after=0)
    ledger.append("moves", StepResult(rows_in=2))
    assert [len(part) for part in (ledger.read("moves", StepResult).pending, ledger.read("moves", StepResult).entries)] == [1, 1]


def test_brackets_in_a_label_or_a_url_are_no_pattern(monkeypatch, tmp_path):
    monkeypatch.setenv(VARIABLE, f"file://{tmp_path}/team [a]")
    shared = shared_objects()
    assert shared
    shared.create("nights/try [1]*-abc/night.json", b"{}")
    assert shared.all_in("nights/try [1]*-abc") == {"night.json": b"{}"}
    assert shared.all_in("nights/none") == {}


def test_an_error_names_the_variable_that_was_set(tmp_path, monkeypatch):
    """It said CLAWPIPE_STORE, which nobody had set."""
    monkeypatch.setenv(VARIABLE, "s3://me:secret@bucket/home")
    for ask in (lambda: shared_objects().names("nights"), lambda: open_store(Home(tmp_path)).remote.outdated()):
        with pytest.raises(ConfigError, match=f"{VARIABLE} holds a password"):
            ask()


@pytest.mark.parametrize("url", ["file://data/team", "file://localhost/team", "s3:///team", "s3://"])
def test_a_url_that_names_no_place_is_refused(monkeypatch, url):
    """Two slashes made a directory of wherever the command was started."""
    monkeypatch.setenv(VARIABLE, url)
    with pytest.raises(ConfigError, match=VARIABLE) as refused:
        shared_objects().names("nights")
    assert "file:///directory" in refused.value.fix
