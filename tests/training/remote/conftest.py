"""Trainings at the fake service: requests of tiny models, and their outcomes."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from clawpipe.core.config.backend import BackendSpec
from clawpipe.core.store.datasets import write_parquet
from tests.fake_tinker import KEY, FakeTinker, fake_tinker

LORA = {"rank": 4, "alpha": 32}


@pytest.fixture(autouse=True)
def _no_connection_outlives_a_test() -> Iterator[None]:
    yield
    gc.collect()


@pytest.fixture
def fake(tmp_path, request_for, monkeypatch) -> Iterator[FakeTinker]:
    """The service, with the base of `request_for` under the name `tiny`."""
    monkeypatch.setenv("TINKER_API_KEY", KEY)
    with fake_tinker({"tiny": str(tmp_path / "base")}) as service:
        yield service


@pytest.fixture
def job(fake, request_for):
    """job(name, train): a request as of `request_for`, for the service or this machine, of rows sampled at temperature 1."""

    def make(name, train=None, there=True, **changes):
        request = request_for(name, train={"lora": LORA, "epochs": 1} | (train or {}), **changes)
        [samples] = request.samples
        rows = [row | {"temperature": 1.0} for row in pq.read_table(samples).to_pylist()]
        write_parquet(pa.Table.from_pylist(rows), Path(samples))
        spec = {"name": "tinker", "url": fake.url, "model": "tiny", "options": {"timeout": 60.0}} if there else {}
        config = request.config.model_copy(update={"backend": BackendSpec.model_validate(spec)})
        return request.model_copy(update={"config": config})

    return make
