"""The data plane benchmark on a few trajectories: that its sources is fit to compare on, and that all engines come to the same."""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from clawpipe.core.contracts.validate import validate
from clawpipe.core.store.artifacts import Store
from clawpipe.core.store.datasets import dataset_files, read_dataset
from clawpipe.data.curation.runner import curate

ROOT = Path(__file__).parents[2]
ROWS = 1024
ENGINES = [
    "pandas",
    "hf_datasets",
    pytest.param("polars", marks=pytest.mark.skipif(importlib.util.find_spec("polars") is None, reason="extra `bench`")),
]


@pytest.fixture(scope="module", autouse=True)
def scripts():
    """The benchmarks import each other by name, as scripts do."""
    sys.path.insert(0, str(ROOT / "benchmarks"))
    yield
    sys.path.remove(str(ROOT / "benchmarks"))


@pytest.fixture(scope="module")
def job(tmp_path_factory, scripts):
    data, jobs = importlib.import_module("data_plane_data"), importlib.import_module("data_plane_job")
    work = tmp_path_factory.mktemp("work")
    store = Store(work / "store")
    sources = data.write_sources(store, ROWS)._asdict()
    return jobs.Job(
        store=store.root, files={k: dataset_files(store, ref) for k, ref in sources.items()}, threads=1, work=work, **sources
    )


@pytest.fixture(scope="module")
def curated(job):
    settings = importlib.import_module("data_plane_job").SETTINGS
    return curate(Store(job.store), [job.trajectories], [job.scores], job.items, settings, "dpo", threads=1)


@pytest.fixture(scope="module")
def pairs(job, curated):
    return read_dataset(Store(job.store), curated.output)


def test_equal_seeds_give_equal_worlds(job, tmp_path):
    data = importlib.import_module("data_plane_data")
    assert data.write_sources(Store(tmp_path), ROWS) == (job.trajectories, job.scores, job.items)
    assert data.write_sources(Store(tmp_path), ROWS, seed=1).trajectories != job.trajectories


def test_world_is_under_contract_but_for_planted_faults(job):
    store = Store(job.store)
    checked = [validate(store, ref, ref.name, threads=1) for ref in (job.trajectories, job.scores, job.items)]
    assert [set(result.filtered) for result in checked] == [{"logprobs[]: not finite"}, set(), set()]
    assert 0 < sum(checked[0].filtered.values()) < ROWS / 50


def test_every_rule_has_rows_to_decide_about(curated):
    reasons = {reason for step in curated.details["steps"] for reason in step["filtered"]}
    assert reasons >= {
        *("no verifier score", "too long", "too many turns", "attempt aborted", "sampled at temperature 0", "log-prob not finite"),
        *("held-out item", "held-out question", "duplicate", "no success in its group", "no failure in its group"),
        *("lengths too different", "sides nearly identical", "not best against worst"),
    }
    assert curated.output.rows > ROWS / 32


@pytest.mark.parametrize("engine", ENGINES)
def test_engines_write_the_same_pairs(job, pairs, engine, tmp_path):
    name, function = importlib.import_module("data_plane").ENGINES[engine]
    getattr(importlib.import_module(name), function)(job.model_copy(update={"work": tmp_path}))
    columns = importlib.import_module("data_plane_job").RESULT.names
    assert by_chosen(pq.read_table(tmp_path / "pairs.parquet"), columns) == by_chosen(pairs, columns)


def by_chosen(table, columns):
    return sorted(table.select(columns).to_pylist(), key=lambda row: (row["chosen_id"], row["rejected_id"]))


def test_prints_ratios_and_conditions(tmp_path):
    only = ["--only", "scan", "clawpipe", "ingest", "--turns", "3000", "--repeats", "1", "--threads", "1"]
    command = [sys.executable, "benchmarks/data_plane.py", *only, "--json", "--out", str(tmp_path / "out.json")]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    result = json.loads(done.stdout)
    assert result == json.loads((tmp_path / "out.json").read_text())
    assert result["ratios"].keys() >= {"clawpipe_over_scan", "narrow_over_scan", "ingest_over_duckdb"}
    assert all(value > 0 for value in result["ratios"].values())
    assert {"turns", "threads", "load_before", "libraries"} <= result["conditions"].keys()
    lines = result["results"]["ingest"]
    assert lines["clawpipe_ingest"]["result"]["rows"] == lines["lines"] == 544
