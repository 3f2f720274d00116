"""Screenshots go with the rows whose verdicts name them."""

from __future__ import annotations

import hashlib
import json
import os

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from clawpipe.data.forgotten.subject import Subject
from clawpipe.record.removal.collect import collect
from clawpipe.record.removal.forget import forget

ANNS, BENS, SHARED, LOOSE = (hashlib.sha256(name).hexdigest() for name in (b"ann", b"ben", b"both", b"nobody"))


def verdict(*digests):
    return json.dumps({"reward": 1.0, "screenshots": digests})


@pytest.fixture
def pictures(filled):
    """Four screenshots: of a row of Ann's, of one of Ben's, of both, of none."""
    rows = [
        filled.imported("a", "s-ann", "ann", "Ann's question", 1) | {"verdict": verdict(ANNS, SHARED)},
        filled.imported("b", "s-ben", "ben", "Ben's question", 2) | {"verdict": verdict(SHARED, BENS)},
    ]
    stored = filled.publish("trajectories", rows)
    filled.night("first", stored, filled.base)
    for digest in (ANNS, BENS, SHARED, LOOSE):
        file = filled.home.screenshots / digest[:2] / f"{digest}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(digest.encode())
    return lambda: {file.stem for file in filled.home.screenshots.glob("*/*.png")}


def test_forgetting_a_user_removes_what_only_their_pages_showed(filled, pictures):
    (found, *_) = forget(filled.home, Subject(user="ann"))
    assert pictures() == {BENS, SHARED}
    assert found.screenshots == 2  # and the one of no row


def test_a_dry_run_leaves_them(filled, pictures):
    forget(filled.home, Subject(user="ann"), dry_run=True)
    assert collect(filled.home, dry_run=True, settling=0.0).screenshots
    assert pictures() == {ANNS, BENS, SHARED, LOOSE}


def test_garbage_is_what_no_row_names_once_it_is_old(filled, pictures):
    assert collect(filled.home).screenshots == []
    loose = filled.home.screenshots / LOOSE[:2] / f"{LOOSE}.png"
    os.utime(loose, (0, 0))
    assert collect(filled.home).screenshots == [loose]
    assert pictures() == {ANNS, BENS, SHARED}


def test_those_of_rows_that_go_with_their_dataset_go_too(filled, pictures):
    collect(filled.home, 0, settling=0.0)
    assert pictures() == set()


def test_those_of_an_unfinished_step_stay(filled, pictures):
    shard = filled.home.work / "shards" / "one" / "x.parquet"
    shard.parent.mkdir(parents=True)
    pq.write_table(pa.table({"verdict": [None, verdict(LOOSE)]}), shard)
    (shard.parent / "fresh").write_bytes(b"unfinished")
    (shard.parent / "broken.parquet").write_bytes(b"no table")
    collect(filled.home, settling=0.0)
    assert LOOSE in pictures()
