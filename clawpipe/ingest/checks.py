"""What the contracts ask of a record, checked while its line is known: it is refused as a whole, with its place and its text."""

from __future__ import annotations

from clawpipe.importers.record import Conversation, Preference, Prompt
from clawpipe.importers.strict_json import RefusedError
from clawpipe.ingest.pairs import check_pair
from clawpipe.ingest.rows import check


def check_record(record: Conversation | Preference | Prompt) -> None:
    """Whether a dataset can hold it.

    Raises:
        RefusedError: under the contract's own words.
    """
    if isinstance(record, Conversation):
        check(record)
    elif isinstance(record, Preference):
        check_pair(record)
    elif not record.messages:
        raise RefusedError("messages: shorter than 1")
