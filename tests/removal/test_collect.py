"""Garbage collection: what is named stays, everything else goes."""

from __future__ import annotations

import os
import time

import pyarrow as pa
import pytest

from clawpipe.core.config.curation import Curation
from clawpipe.core.contracts.schema import schema_of
from clawpipe.core.store.artifacts import STAGING, Store
from clawpipe.core.store.datasets import dataset_files, publish_dataset, publish_files
from clawpipe.core.store.files import exclusive
from clawpipe.core.store.notes import BY_HAND, Note, Notes
from clawpipe.core.store.refs import StepResult
from clawpipe.core.store.replaced import note_replaced
from clawpipe.data.curation.measures import NAME, measured
from clawpipe.data.curation.partitions import NAME as PARTITIONS
from clawpipe.data.curation.runner import wants
from clawpipe.errors import BusyError
from clawpipe.record.nights.files import LINEAGE
from clawpipe.record.removal.collect import collect
from clawpipe.record.tracking.wandb_sink import WandbSink


def gc(filled, keep=None, **options):
    return collect(filled.home, keep, settling=0.0, **options)


def there(filled, *refs):
    return [Store(filled.home.store).path(ref).exists() for ref in refs]


def test_what_nobody_names_goes(filled):
    filled.night("first", filled.refs["samples"], filled.base)
    found = gc(filled)
    gone = {one.name for one in found.artifacts}
    assert gone == {"scores", "preference_pairs", "token_scores", "quarantine", "task_items", "eval_results"}
    assert there(filled, filled.refs["samples"], filled.refs["trajectories"]) == [
        True,
        True,
    ]  # by a night; by an import and a night
    assert found.kept == 2
    assert found.bytes > 0
    assert gc(filled).artifacts == []


def test_an_import_keeps_what_it_made_though_no_night_names_it(filled):
    gc(filled)
    assert there(filled, filled.refs["trajectories"]) == [True]


def test_measures_stay_as_long_as_their_trajectories(filled):
    raw, loose = filled.refs["trajectories"], filled.publish("trajectories", filled.rows("trajectories")[1:3])
    kept, gone = measured(filled.store, [raw, loose], wants(Curation(), "grpo"))
    filled.refs["trajectories"] = raw
    gc(filled)
    assert there(filled, raw, loose, kept, gone) == [True, False, True, False]
    assert [(note.dataset.parents, note.dataset) for note in Notes(filled.store, NAME)] == [((raw.digest,), kept)]


def test_decisions_stay_as_long_as_what_was_put_together_of_them(filled):
    store, rows = filled.store, filled.rows("samples")
    parts = [publish_dataset(store, "samples", [pa.Table.from_pylist(half, schema_of("samples"))]) for half in (rows[:1], rows[1:])]
    for part in parts:
        Notes(store, PARTITIONS).keep(part.digest, Note(dataset=part))
    whole = publish_files(store, "samples", [file for part in parts for file in dataset_files(store, part)])
    filled.night("first", whole, filled.base)
    gc(filled)
    assert there(filled, *parts) == [True, True]
    assert len(list(Notes(store, PARTITIONS))) == 2
    filled.night("second", filled.refs["samples"], filled.base)
    gc(filled, keep=1)
    assert there(filled, whole, *parts) == [False, False, False]
    assert not list(Notes(store, PARTITIONS))


def test_an_empty_result_stays_as_long_as_its_trajectories(filled):
    for name in ("trajectories", "samples"):
        empty = publish_dataset(filled.store, "samples", [schema_of("samples").empty_table()], parents=[filled.refs[name].digest])
        Notes(filled.store, PARTITIONS).keep(name, Note(dataset=empty))
    gc(filled)
    assert [note.dataset.rows for note in Notes(filled.store, PARTITIONS)] == [0, 0]  # one dataset


def test_what_took_the_place_of_a_named_one_is_named(filled):
    new = filled.publish("trajectories", [])
    note_replaced(filled.store, {filled.refs["scores"].digest: "x", "x": new.digest})
    filled.night("first", filled.refs["scores"], filled.base)
    assert there(filled, new) == [True]
    gc(filled)
    assert there(filled, new) == [True]


def test_only_the_latest_nights_keep_what_they_made(filled):
    lessons = [filled.publish("samples", [row]) for row in filled.rows("samples")[:3]]
    for number, lesson in enumerate(lessons):
        filled.night(f"night-{number}", lesson, filled.base)
    found = gc(filled, 1)
    assert there(filled, *lessons) == [False, False, True]
    assert found.nights == [filled.nights["night-2"]]
    assert found.records == 5  # curate of the two that went, and train of all three, whose adapters never lay here
    assert (filled.home.runs / filled.nights["night-0"] / LINEAGE).exists()


def test_what_a_command_made_stays_with_the_nights_of_its_time(filled):
    old, new = (filled.publish("scores", rows) for rows in ([], filled.rows("scores")))
    for label in ("first", "second"):
        filled.night(label, filled.refs["samples"], filled.base)
    for ref, nights in ((old, 1), (new, 0)):
        Notes(filled.store, BY_HAND).keep(ref.digest, Note(dataset=ref))
        os.utime(Notes(filled.store, BY_HAND).directory / f"{ref.digest}.json", (time.time() - nights * 86400,) * 2)
    assert there(filled, old, new) == [True, True]
    gc(filled)
    assert there(filled, old, new) == [True, True]
    gc(filled, 1)
    assert there(filled, old, new) == [False, True]


def test_a_night_without_a_verdict_is_kept_with_its_work(filled):
    lesson = filled.refs["samples"]
    filled.night("unfinished", lesson, filled.base)
    (filled.home.runs / filled.nights["unfinished"] / LINEAGE).unlink()
    found = gc(filled, 0)
    assert there(filled, lesson) == [True]
    assert not found.work
    assert (filled.home.work / "shards" / "fresh").exists()


def test_work_that_no_night_will_take_up_goes(filled):
    filled.night("finished", filled.refs["samples"], filled.base)
    assert gc(filled).work
    assert not filled.home.work.exists()


def test_work_that_is_a_link_to_another_disk_is_emptied(filled, tmp_path):
    filled.night("finished", filled.refs["samples"], filled.base)
    filled.home.work.rename(tmp_path / "fast")
    filled.home.work.symlink_to(tmp_path / "fast")
    assert gc(filled).work
    assert list((tmp_path / "fast").iterdir()) == []
    assert filled.home.work.is_dir()


def test_an_artifact_that_is_linked_from_a_kept_one_stays(filled):
    """The chunks of a round cost nothing beside the round, and a night that runs again asks for them."""
    chunks = [filled.publish("samples", [row]) for row in filled.rows("samples")[:2]]
    whole = publish_files(filled.store, "samples", [file for chunk in chunks for file in dataset_files(filled.store, chunk)])
    filled.night("first", whole, filled.base)
    gc(filled)
    assert there(filled, *chunks, whole) == [True] * 3


@pytest.mark.slow
def test_a_registered_version_keeps_what_taught_it(filled, tracking):
    lesson = filled.refs["samples"]
    policy = filled.night("first", lesson, filled.base)
    filled.register(tracking, "first", policy, lesson)
    gc(filled, 0)
    assert there(filled, lesson, filled.refs["scores"]) == [True, False]


def test_reports_of_old_nights_go_when_asked_for_records_stay(filled):
    for label in ("old", "open", "new"):
        filled.night(label, filled.refs["samples"], filled.base)
    old, unfinished, new = (filled.home.runs / filled.nights[label] for label in ("old", "open", "new"))
    (unfinished / LINEAGE).unlink()
    assert gc(filled, keep_reports=1, dry_run=True).reports == [old.name]
    assert gc(filled, keep_reports=1).reports == [old.name]
    assert {path.name for path in old.iterdir()} == {"night.json", "config.json", "status.json", "lineage.json"}
    assert all((night / name).exists() for night in (unfinished, new) for name in ("report.html", "logs"))
    assert gc(filled, keep_reports=1).reports == []


@pytest.mark.slow
def test_offline_runs_of_wandb_stay_until_they_are_uploaded(filled, monkeypatch):
    monkeypatch.setenv("WANDB_MODE", "offline")
    filled.night("old", filled.refs["samples"], filled.base)
    night = filled.home.runs / filled.nights["old"]
    sink = WandbSink("p", night.name, {"train": {"method": "sft"}}, night)
    sink.open(1)
    sink.log(1, {"loss": 0.5})
    sink.close(failed=False)
    [run] = night.glob("wandb/offline-run-*/*.wandb")
    assert gc(filled, keep_reports=0).reports == [night.name]
    assert run.exists()
    assert not (night / "report.html").exists()
    assert gc(filled, keep_reports=0).reports == []
    run.with_suffix(".wandb.synced").touch()  # as `wandb sync` leaves it
    assert gc(filled, keep_reports=0).reports == [night.name]
    assert not (night / "wandb").exists()


def test_what_is_new_stays_until_it_has_settled(filled):
    assert collect(filled.home, 0).artifacts == []


def test_a_dry_run_removes_nothing(filled):
    (filled.home.store / STAGING / "left").mkdir(parents=True, exist_ok=True)
    before = [path for path, _ in filled.bytes() if path.suffix != ".lock"]
    planned = gc(filled, dry_run=True)
    assert [path for path, _ in filled.bytes() if path.suffix != ".lock"] == before
    assert (filled.home.store / STAGING / "left").exists()
    done = gc(filled)
    assert planned.artifacts == done.artifacts
    assert done.staging == 1
    assert len(planned.artifacts) == 7


def test_nothing_is_removed_while_a_night_runs(filled):
    with exclusive(filled.home.locks / "night.lock", "the home"), pytest.raises(BusyError):
        gc(filled)
    assert all(there(filled, *filled.refs.values()))


def test_a_record_that_stands_before_a_living_one_stays(filled):
    """A key's generations are walked from the first: without it the second would never be found."""
    filled.night("first", filled.refs["samples"], filled.base)
    filled.write_step("score-x", StepResult(output=filled.refs["scores"]))
    filled.write_step("score-x.r1", StepResult(output=filled.refs["samples"]))
    filled.write_step("score-y", StepResult(output=filled.refs["scores"]))
    gc(filled)
    assert {path.name for path in filled.home.steps.iterdir()} >= {"score-x", "score-x.r1"}
    assert not (filled.home.steps / "score-y").exists()


def test_a_home_without_anything(home):
    assert collect(home).artifacts == []
