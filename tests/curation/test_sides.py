"""Two sides become one pair, however their rows arrive."""

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clawpipe.core.contracts.schema import schema_of
from clawpipe.core.store.parts import rechunk
from clawpipe.data.curation.steps import joined

COMMON = [f.name for f in schema_of("preference_pairs") if not f.name.startswith(("chosen_", "rejected_"))]


def reader(pairs, cuts):
    """Sides of numbered pairs, of which only what is numbered differs, in batches that end at `cuts`."""
    schema = schema_of("preference_pairs")
    own = {"id": "chosen_id", "token_ids": "chosen_token_ids", "loss_mask": "chosen_loss_mask", "reply": "chosen"}
    kinds = {name: schema.field(name).type for name in COMMON if name not in ("chosen", "rejected")}
    kinds |= {name: schema.field(like).type for name, like in own.items()}
    places = range(2 * pairs)
    values = {"pair_id": [str(place // 2) for place in places], "id": [f"id {place}" for place in places]}
    values |= {"token_ids": [[place] for place in places]}
    columns = {name: pa.array(values.get(name, [None] * len(places)), kind) for name, kind in kinds.items()}
    table = pa.table(columns)
    ends = [*sorted(min(cut, len(places)) for cut in cuts), len(places)]
    parts = [table.slice(start, end - start) for start, end in zip([0, *ends], ends, strict=False)]
    return pa.RecordBatchReader.from_batches(table.schema, [batch for part in parts for batch in part.to_batches()])


@settings(max_examples=30, deadline=None)
@given(pairs=st.integers(0, 12), cuts=st.lists(st.integers(0, 24), max_size=4))
def test_neighbours_are_a_pair(pairs, cuts):
    table = pa.concat_tables(rechunk(joined(reader(pairs, cuts)), schema_of("preference_pairs")))
    assert table["pair_id"].to_pylist() == [str(pair) for pair in range(pairs)]
    assert table["rejected_id"].to_pylist() == [f"id {2 * pair + 1}" for pair in range(pairs)]
    assert table["chosen_token_ids"].to_pylist() == [[2 * pair] for pair in range(pairs)]
    assert table["rejected_token_ids"].to_pylist() == [[2 * pair + 1] for pair in range(pairs)]


@pytest.mark.parametrize("cut", [1, 2047, 2049])
def test_more_rows_than_are_held_at_once(cut):
    table = pa.concat_tables(rechunk(joined(reader(3000, [cut])), schema_of("preference_pairs")))
    assert table["rejected_token_ids"].to_pylist() == [[2 * pair + 1] for pair in range(3000)]
