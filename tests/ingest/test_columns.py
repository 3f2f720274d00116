"""Rows as columns, against Arrow's own way from dictionaries."""

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clawpipe.core.contracts.schema import schema_of
from clawpipe.core.conversation.messages import Message, ToolCall
from clawpipe.data.ingest.intake.dataset_writer import MESSAGES, message_array, record_batch

_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
_CALLS = st.lists(st.builds(ToolCall, _TEXT, _TEXT, _TEXT, st.booleans()), max_size=2).map(tuple)
_MESSAGE = st.builds(Message, st.sampled_from(["user", "tool"]), _TEXT, _CALLS, st.none() | _TEXT, st.none() | _TEXT)


@given(st.lists(st.none() | st.lists(_MESSAGE, max_size=3).map(tuple), max_size=4))
@settings(deadline=None)
def test_messages_become_the_columns_that_arrow_makes(conversations):
    rows = [None if messages is None else [message.as_dict() for message in messages] for messages in conversations]
    made = message_array(conversations)
    made.validate(full=True)
    assert made.equals(pa.array(rows, MESSAGES))


def test_rows_may_lack_columns():
    schema = schema_of("scores")
    rows = [{"trajectory_id": "a", "value": 1.0}, {"trajectory_id": "b", "turn": 2, "hints": ["x"]}]
    assert record_batch(rows, schema).equals(pa.RecordBatch.from_pylist(rows, schema=schema))


def test_a_value_of_another_type_is_an_error():
    with pytest.raises((pa.ArrowException, TypeError)):
        record_batch([{"trajectory_id": "a", "turn": "two"}], schema_of("scores"))
