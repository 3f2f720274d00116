"""A night's table says what was shortened, and what could not be."""

from clawpipe.record.reporting.wording import shortened


def test_what_was_shortened_is_said_in_rows_and_tokens():
    details = {
        "compressed": {"rows": 8, "tokens": 2402, "messages": 30, "tool_results": 1},
        "not_compressed": {"what has to stay is too long": 2},
    }
    assert shortened(details) == ["8 shortened by 2402 tokens", "2 not shortened: what has to stay is too long"]
    assert shortened({"compressed": {}, "not_compressed": {}}) == shortened({}) == []
