"""Measures are a memory and nothing else: with them, without them or with others' gone, curation comes to the same bytes."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys

import pyarrow.parquet as pq
import pytest

from clawpipe.core.config.curation import Curation, Filters, Pairs
from clawpipe.core.store.datasets import read_dataset
from clawpipe.core.store.notes import Notes
from clawpipe.core.store.rewrite import without_rows
from clawpipe.data.curation import measures, partitions
from clawpipe.data.curation.measures import NAME, SCHEMA, measured
from clawpipe.data.curation.runner import curate, wants
from clawpipe.errors import DataError

SETTINGS = {
    "grpo": Curation(),
    "sft": Curation(filters=Filters(max_repetition=0.9, scripts=("Latin",))),
    "dpo": Curation(pairs=Pairs(strategy="same-prefix", corrections=True)),
}


@pytest.fixture
def nights(tables):
    """Three nights' datasets of four groups each, one dataset of scores, items."""
    for item in "abcdefghijkl":
        for index in range(3):
            tables.rollout(item, index, float(index == 1), text=f"answer {index} to {item}, at length")
    tables.item("a", "about a?", split="heldout")
    datasets = [tables.publish("trajectories", tables.trajectories[start : start + 12]) for start in (0, 12, 24)]
    return datasets, [tables.publish("scores", tables.scores)], tables.publish("task_items", tables.items)


def curated(store, nights, method="grpo"):
    datasets, scores, items = nights
    return curate(store, datasets, scores, items, SETTINGS[method], method, threads=1)


def forget_decisions(store):
    """Or nothing would be decided anew, with measures or without."""
    shutil.rmtree(Notes(store, partitions.NAME).directory, ignore_errors=True)


def forget_measures(store):
    forget_decisions(store)
    for left in (store.root / NAME, Notes(store, NAME).directory):
        shutil.rmtree(left)


@pytest.fixture
def reads(monkeypatch):
    """Digests of the datasets of which tokens and messages were measured."""
    seen, measure = [], measures.measure
    monkeypatch.setattr(measures, "measure", lambda *one, **told: seen.append(told["trajectories"].digest) or measure(*one, **told))
    return seen


@pytest.mark.parametrize("method", SETTINGS)
def test_only_a_new_dataset_is_measured_and_bytes_are_equal(method, tables, nights, reads):
    datasets, *others = nights
    curated(tables.store, (datasets[:2], *others), method)
    assert reads == [ref.digest for ref in datasets[:2]]
    added = curated(tables.store, nights, method)
    assert reads == [ref.digest for ref in datasets]
    forget_measures(tables.store)
    whole = curated(tables.store, nights, method)
    assert reads[3:] == [ref.digest for ref in datasets]
    assert added == whole
    assert whole.rows_out


def test_measures_stand_in_the_order_of_their_rows(tables, nights):
    [told] = measured(tables.store, nights[0][1:2], wants(Curation(), "grpo"))
    table = read_dataset(tables.store, told)
    assert table.schema.equals(SCHEMA)
    assert table["row"].to_pylist() == list(range(12))
    assert table["trajectory_id"].to_pylist() == [row["trajectory_id"] for row in tables.trajectories[12:24]]
    assert table["length"].to_pylist() == [5] * 12
    assert "messages" not in table.column_names


def test_settings_with_other_measures_are_measured_anew(tables, nights, reads):
    dataset = nights[0][0]
    [plain], [quality] = (measured(tables.store, [dataset], wants(SETTINGS[method], method)) for method in ("grpo", "sft"))
    assert reads == [dataset.digest] * 2
    assert plain != quality
    limit = Curation(filters=Filters(max_repetition=0.2, scripts=("Latin",)))
    assert measured(tables.store, [dataset], wants(limit, "sft")) == [quality]  # a limit is not what is measured
    assert len(reads) == 2


@pytest.mark.parametrize(("method", "moment"), [("grpo", "measures.before_note#2"), ("dpo", "measures.before_use#2")])
def test_a_kill_while_measuring_leads_to_the_same_bytes(moment, method, tables, nights, tmp_path):
    datasets, [scores], items = nights
    told = [ref.model_dump_json() for ref in (*datasets, scores, items)]
    code = f"""
from pathlib import Path
from clawpipe.core.config.curation import Curation
from clawpipe.data.curation.runner import curate
from clawpipe.core.store.artifacts import Store
from clawpipe.core.store.refs import DatasetRef
*datasets, scores, items = map(DatasetRef.model_validate_json, {told!r})
settings = Curation.model_validate_json({SETTINGS[method].model_dump_json()!r})
curate(Store(Path({str(tables.store.root)!r})), datasets, [scores], items, settings, {method!r}, threads=1)
"""
    ended = subprocess.run([sys.executable, "-c", code], env=os.environ | {"CLAWPIPE_KILL_AT": moment}, check=False)
    assert ended.returncode == -signal.SIGKILL
    assert len(list(Notes(tables.store, NAME))) == (1 if "note" in moment else 2)
    again = curated(tables.store, nights, method)
    forget_measures(tables.store)
    assert curated(tables.store, nights, method) == again


def test_what_is_damaged_is_measured_again(tables, nights, reads):
    whole = curated(tables.store, nights)
    first, second, _ = sorted((tables.store.root / NAME).glob("*/part-00000.parquet"))
    first.write_bytes(b"PAR1")
    shutil.rmtree(second.parent)
    note = next(Notes(tables.store, NAME).directory.iterdir())
    note.write_text("{")
    forget_decisions(tables.store)
    assert curated(tables.store, nights) == whole
    assert len(reads) in (3 + 2, 3 + 3)  # the note may be that of the third


def test_rows_that_were_taken_out_leave_the_measures_too(tables, nights, reads):
    datasets, *others = nights
    curated(tables.store, nights)
    fewer = without_rows(tables.store, datasets[1], {0: [0, 1, 2]})
    tables.store.remove(datasets[1])
    changed = ([datasets[0], fewer, datasets[2]], *others)
    after = curated(tables.store, changed)
    assert reads[3:] == [fewer.digest]
    forget_measures(tables.store)
    assert curated(tables.store, changed) == after
    assert "e-0" not in {row["trajectory_id"] for row in tables.rows(after)}


def test_missing_trajectories_are_reported_despite_measures(tables, nights):
    curated(tables.store, nights)
    tables.store.remove(nights[0][1])
    with pytest.raises(DataError, match="missing or damaged"):
        curated(tables.store, nights)


def test_measures_hold_no_text(tables, nights):
    curated(tables.store, nights)
    for file in (tables.store.root / NAME).glob("*/*.parquet"):
        assert "at length" not in str(pq.read_table(file).to_pylist())
