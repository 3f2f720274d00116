"""Garbage collection: what is named stays, everything else goes."""

from __future__ import annotations

import os

import pyarrow as pa
import pytest

from clawpipe.config.curation import Curation
from clawpipe.contracts.schema import schema_of
from clawpipe.curation.measures import NAME, measured
from clawpipe.curation.partitions import NAME as COHORTS
from clawpipe.curation.runner import wants
from clawpipe.errors import BusyError
from clawpipe.nights.record import LINEAGE
from clawpipe.removal.collect import collect
from clawpipe.store.artifacts import STAGING, Store
from clawpipe.store.datasets import dataset_files, publish_dataset, publish_files
from clawpipe.store.files import exclusive
from clawpipe.store.notes import Note, Notes
from clawpipe.store.refs import StepResult
from clawpipe.store.replaced import note_replaced


def gc(world, keep=None, **options):
    return collect(world.home, keep, settling=0.0, **options)


def there(world, *refs):
    return [Store(world.home.store).path(ref).exists() for ref in refs]


def test_what_nobody_names_goes(world):
    world.night("first", world.refs["samples"], world.base)
    found = gc(world)
    gone = {one.name for one in found.artefacts}
    assert gone == {"scores", "preference_pairs", "token_scores", "quarantine", "task_items", "eval_results"}
    assert there(world, world.refs["samples"], world.refs["trajectories"]) == [True, True]  # by a night; by an import and a night
    assert found.kept == 2
    assert found.bytes > 0
    assert gc(world).artefacts == []


def test_an_import_keeps_what_it_made_though_no_night_names_it(world):
    gc(world)
    assert there(world, world.refs["trajectories"]) == [True]


def test_measures_stay_as_long_as_their_trajectories(world):
    raw, loose = world.refs["trajectories"], world.publish("trajectories", world.rows("trajectories")[1:3])
    kept, gone = measured(world.store, [raw, loose], wants(Curation(), "grpo"))
    world.refs["trajectories"] = raw
    gc(world)
    assert there(world, raw, loose, kept, gone) == [True, False, True, False]
    assert [(note.dataset.parents, note.dataset) for note in Notes(world.store, NAME)] == [((raw.digest,), kept)]


def test_decisions_stay_as_long_as_what_was_put_together_of_them(world):
    store, rows = world.store, world.rows("samples")
    parts = [publish_dataset(store, "samples", [pa.Table.from_pylist(half, schema_of("samples"))]) for half in (rows[:1], rows[1:])]
    for part in parts:
        Notes(store, COHORTS).keep(part.digest, Note(dataset=part))
    whole = publish_files(store, "samples", [file for part in parts for file in dataset_files(store, part)])
    world.night("first", whole, world.base)
    gc(world)
    assert there(world, *parts) == [True, True]
    assert len(list(Notes(store, COHORTS))) == 2
    world.night("second", world.refs["samples"], world.base)
    gc(world, keep=1)
    assert there(world, whole, *parts) == [False, False, False]
    assert not list(Notes(store, COHORTS))


def test_a_decision_that_kept_no_row_stays_as_long_as_its_trajectories(world):
    for name in ("trajectories", "samples"):
        empty = publish_dataset(world.store, "samples", [schema_of("samples").empty_table()], parents=[world.refs[name].digest])
        Notes(world.store, COHORTS).keep(name, Note(dataset=empty))
    gc(world)
    assert [note.dataset.rows for note in Notes(world.store, COHORTS)] == [0, 0]  # one dataset


def test_what_took_the_place_of_a_named_one_is_named(world):
    new = world.publish("trajectories", [])
    note_replaced(world.store, {world.refs["scores"].digest: "x", "x": new.digest})
    world.night("first", world.refs["scores"], world.base)
    assert there(world, new) == [True]
    gc(world)
    assert there(world, new) == [True]


def test_only_the_latest_nights_keep_what_they_made(world):
    lessons = [world.publish("samples", [row]) for row in world.rows("samples")[:3]]
    for number, lesson in enumerate(lessons):
        world.night(f"night-{number}", lesson, world.base)
        os.utime(world.home.runs / world.nights[f"night-{number}"], (number + 1, number + 1))
    found = gc(world, 1)
    assert there(world, *lessons) == [False, False, True]
    assert found.nights == [world.nights["night-2"]]
    assert found.records == 5  # curate of the two that went, and train of all three, whose adapters never lay here
    assert (world.home.runs / world.nights["night-0"] / LINEAGE).exists()


def test_a_night_without_a_verdict_is_kept_with_its_work(world):
    lesson = world.refs["samples"]
    world.night("unfinished", lesson, world.base)
    (world.home.runs / world.nights["unfinished"] / LINEAGE).unlink()
    found = gc(world, 0)
    assert there(world, lesson) == [True]
    assert not found.work
    assert (world.home.work / "shards" / "fresh").exists()


def test_work_that_no_night_will_take_up_goes(world):
    world.night("finished", world.refs["samples"], world.base)
    assert gc(world).work
    assert not world.home.work.exists()


def test_an_artefact_that_is_linked_from_a_kept_one_stays(world):
    """The chunks of a round cost nothing beside the round, and a night that runs again asks for them."""
    chunks = [world.publish("samples", [row]) for row in world.rows("samples")[:2]]
    whole = publish_files(world.store, "samples", [file for chunk in chunks for file in dataset_files(world.store, chunk)])
    world.night("first", whole, world.base)
    gc(world)
    assert there(world, *chunks, whole) == [True] * 3


@pytest.mark.slow
def test_a_registered_version_keeps_what_taught_it(world, tracking):
    lesson = world.refs["samples"]
    policy = world.night("first", lesson, world.base)
    world.register(tracking, "first", policy, lesson)
    gc(world, 0)
    assert there(world, lesson, world.refs["scores"]) == [True, False]


def test_what_is_new_stays_until_it_has_settled(world):
    assert collect(world.home, 0).artefacts == []


def test_a_dry_run_removes_nothing(world):
    (world.home.store / STAGING / "left").mkdir(parents=True, exist_ok=True)
    before = [path for path, _ in world.bytes() if path.suffix != ".lock"]
    planned = gc(world, dry_run=True)
    assert [path for path, _ in world.bytes() if path.suffix != ".lock"] == before
    assert (world.home.store / STAGING / "left").exists()
    done = gc(world)
    assert planned.artefacts == done.artefacts
    assert done.staging == 1
    assert len(planned.artefacts) == 7


def test_nothing_is_removed_while_a_night_runs(world):
    with exclusive(world.home.locks / "night.lock", "the home"), pytest.raises(BusyError):
        gc(world)
    assert all(there(world, *world.refs.values()))


def test_a_record_that_stands_before_a_living_one_stays(world):
    """A key's generations are walked from the first: without it the second would never be found."""
    world.night("first", world.refs["samples"], world.base)
    world.write_step("score-x", StepResult(output=world.refs["scores"]))
    world.write_step("score-x.r1", StepResult(output=world.refs["samples"]))
    world.write_step("score-y", StepResult(output=world.refs["scores"]))
    gc(world)
    assert {path.name for path in world.home.steps.iterdir()} >= {"score-x", "score-x.r1"}
    assert not (world.home.steps / "score-y").exists()


def test_a_home_without_anything(home):
    assert collect(home).artefacts == []
