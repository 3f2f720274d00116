"""Forgetting and garbage with a store that several homes share: its objects are searched, one by one."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from dataclasses import replace

import fsspec
import pyarrow.parquet as pq
import pytest

from clawpipe.core.store.datasets import dataset_ref, read_dataset, stored_datasets
from clawpipe.core.store.files import MANIFEST
from clawpipe.core.store.home import Home
from clawpipe.data.forgotten.subject import Subject
from clawpipe.errors import ConfigError
from clawpipe.record.lineage.exposure import exposure
from clawpipe.record.removal import forget as forgetting
from clawpipe.record.removal.collect import collect
from clawpipe.record.removal.forget import forget

ANN = Subject(user="ann")
each = pytest.mark.parametrize("storage", [pytest.param("s3", marks=pytest.mark.slow), "memory"], indirect=True)


@pytest.fixture
def url(storage: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """Ask for it before the filled: what the filled publishes goes there."""
    monkeypatch.setenv("CLAWPIPE_STORE", storage)
    return storage


def objects(url: str) -> Iterator[tuple[str, bytes]]:
    """Every object, and what a compressed one holds."""
    system, root = fsspec.url_to_fs(url)
    system.invalidate_cache()
    for path in system.find(root):
        data = system.cat_file(path)
        yield path, data
        if path.endswith(".parquet"):
            yield path, json.dumps(pq.read_table(io.BytesIO(data)).to_pylist()).encode()


def holding(url: str, *texts: str) -> list[str]:
    return [path for path, data in objects(url) if any(text.encode() in data for text in texts)]


def visible(url: str) -> set[str]:
    return {path.split("/")[-2] for path, _ in objects(url) if path.endswith(MANIFEST)}


@each
def test_the_bytes_are_gone_from_the_shared_store_and_the_home(url, filled):
    assert holding(url, filled.ann)
    [result] = forget(filled.home, ANN)
    assert holding(url, filled.ann, "sess-a2", '"ann"') == []
    assert filled.holding(filled.ann, "sess-a2", '"ann"') == []
    assert result.still_held == []
    assert holding(url, filled.ben)  # the search finds what is there
    assert not visible(url) & result.replaced.keys()
    assert visible(url) >= set(result.replaced.values())


@each
def test_a_home_without_a_copy_forgets_for_all(url, filled, tmp_path):
    second = Home(tmp_path / "second")
    assert exposure(second, ANN).trajectories == 5
    old = filled.refs["trajectories"].digest
    [result] = forget(second, ANN)
    assert holding(url, filled.ann) == []
    assert len(result.replaced) == 8
    assert filled.store.path(filled.refs["trajectories"]).exists()  # until this home looks
    forget(filled.home, Subject(session="sess-b"))  # and what it forgets does not bring her back
    assert holding(url, filled.ann) == []
    assert not list(filled.home.store.glob(f"*/{old}"))
    left = read_dataset(filled.store, dataset_ref(filled.store, "trajectories", old), ["trajectory_id"])
    assert left["trajectory_id"].to_pylist() == ["x1"]


@pytest.mark.parametrize("storage", ["memory"], indirect=True)
def test_a_removal_killed_halfway_is_finished(url, filled, monkeypatch):
    class KilledError(BaseException):
        """No handler of errors may see it, as none sees SIGKILL."""

    def die(name, detail=""):
        if (name, detail) == ("store.before_files_go", "trajectories"):
            raise KilledError

    with monkeypatch.context() as patch:
        patch.setattr("clawpipe.core.system.faults.kill_point", die)
        with pytest.raises(KilledError):
            forget(filled.home, ANN)
    assert filled.refs["trajectories"].digest not in visible(url)
    assert holding(url, filled.ann)
    forget(filled.home, ANN)
    assert holding(url, filled.ann) == []


@pytest.mark.parametrize("storage", ["memory"], indirect=True)
def test_what_another_home_writes_meanwhile_is_told(url, filled, monkeypatch, tmp_path):
    """Its dataset comes after the search, and half of one: nobody can say of that what it holds."""
    other, late, clean_up = replace(filled, home=Home(tmp_path / "second"), refs={}), [], forgetting.clean
    [row] = [row for row in filled.rows("trajectories") if row["trajectory_id"] == "b1"]

    def clean(*arguments):
        late.append(other.publish("trajectories", [row | {"trajectory_id": "late", "user_id": "ann"}]))
        system, root = fsspec.url_to_fs(url)
        system.pipe_file(f"{root}/scores/half/part.half", b"?")
        return clean_up(*arguments)

    monkeypatch.setattr(forgetting, "clean", clean)
    [result] = forget(filled.home, ANN)
    told = [where.removeprefix(fsspec.url_to_fs(url)[1]).strip("/") for where in result.still_held]
    assert told == [f"trajectories/{late[0].digest}", "scores/half"]
    assert other.store.has(late[0])


@each
def test_garbage_leaves_the_home_and_stays_in_the_shared_store(url, filled):
    filled.night("first", filled.refs["samples"], filled.base)
    before = visible(url)
    found = collect(filled.home, settling=0.0)
    assert {one.name for one in found.artifacts} == {
        *("scores", "preference_pairs", "token_scores", "quarantine", "task_items", "eval_results")
    }
    assert found.remote == []
    assert visible(url) == before
    assert not filled.store.path(filled.refs["scores"]).exists()
    assert filled.store.intact(filled.refs["scores"])


@each
def test_garbage_leaves_the_shared_store_where_that_is_said(url, filled):
    filled.night("first", filled.refs["samples"], filled.base)
    system, root = fsspec.url_to_fs(url)
    system.pipe_file(f"{root}/scores/half/part.half", b"?")
    assert collect(filled.home, remote=True).remote == []  # nothing has settled
    planned = collect(filled.home, remote=True, settling=0.0, dry_run=True)
    assert len(planned.remote) == 6
    assert sum(one.bytes for one in planned.remote if one.name == "scores") == sum(
        len(data) for path, data in objects(url) if filled.refs["scores"].digest in path and not data.startswith(b"[")
    )
    done = collect(filled.home, remote=True, settling=0.0)
    assert done.remote == planned.remote
    assert visible(url) == {filled.refs["samples"].digest, filled.refs["trajectories"].digest}
    assert not [path for path, _ in objects(url) if "half" in path]
    assert {ref.name for ref in stored_datasets(filled.store)} == {"samples", "trajectories"}


def test_there_must_be_a_shared_store(home):
    with pytest.raises(ConfigError, match="no shared store"):
        collect(home, remote=True)
