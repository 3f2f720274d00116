"""Tables that steps of curation read by name."""

import duckdb
import pyarrow as pa
import pytest

from clawpipe.data.curation.joined_tables import LAYOUTS, register
from clawpipe.errors import DataError


def test_every_table_is_there_and_what_is_not_given_is_empty():
    rows = pa.Table.from_pylist([{"trajectory_id": "t"}], schema=LAYOUTS["near_duplicate"])
    with duckdb.connect() as duck:
        register(duck, {"near_duplicate": rows})
        counts = {name: duck.sql(f'select count(*) from "{name}"').fetchall() for name in LAYOUTS}
    assert counts.pop("near_duplicate") == [(1,)]
    assert set(map(str, counts.values())) == {"[(0,)]"}


def test_unknown_tables_and_other_layouts_are_refused():
    with duckdb.connect() as duck:
        with pytest.raises(DataError, match="horoscope"):
            register(duck, {"horoscope": pa.table({"trajectory_id": ["t"]})})
        with pytest.raises(DataError, match="columns"):
            register(duck, {"near_heldout": pa.table({"sign": ["t"]})})
