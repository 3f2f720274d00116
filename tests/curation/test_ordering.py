"""Wide rows come in order, whatever their batches and files."""

import errno
import subprocess
import sys
import textwrap

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clawpipe.core.store.artifacts import STAGING
from clawpipe.data.curation import measures as ordering


def reader(places, batch):
    texts = pa.array([[f"row {place}"] * (place % 3) for place in places], pa.list_(pa.string()))
    table = pa.table({"place": pa.array(places, pa.int64()), "texts": texts})
    return pa.RecordBatchReader.from_batches(table.schema, table.to_batches(batch))


@settings(max_examples=30, deadline=None)
@given(count=st.integers(0, 60), tokens=st.integers(0, 400), batch=st.integers(1, 70), seed=st.integers(0, 9))
def test_rows_come_in_order(tmp_path_factory, count, tokens, batch, seed):
    directory = tmp_path_factory.mktemp("rows")
    places = np.random.default_rng(seed).permutation(count).tolist()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ordering, "_TOKENS", 10)
        patch.setattr(ordering, "_BUFFER", 200)
        patch.setattr(ordering, "_FILES", 7)
        rows = ordering.in_order(reader(places, batch), count, tokens, directory)
        assert rows.schema.names == ["texts"]
        table = rows.read_all()
    assert table["texts"].to_pylist() == [[f"row {place}"] * (place % 3) for place in range(count)]
    assert list(directory.iterdir()) == []


def test_a_full_disk_is_an_error_and_leaves_nothing(tmp_path):
    """The limit on a file's size gives the error that a full disk gives: a write fails half-way."""
    code = f"""
        import os, resource
        from pathlib import Path
        import pyarrow as pa
        from clawpipe.data.curation.measures import in_order
        from clawpipe.core.store.artifacts import staging
        resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
        table = pa.table({{"place": pa.array(range(9)), "text": [os.urandom(9_000).hex()] * 9}})
        try:
            with staging(Path({str(tmp_path)!r}), "rows") as directory:
                in_order(table.to_reader(), 9, 9, directory).read_all()
        except OSError as error:
            print(error.errno)
    """
    told = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=True)
    assert told.stdout.split() == [str(errno.EFBIG)]
    assert list((tmp_path / STAGING).iterdir()) == []
