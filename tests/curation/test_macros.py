"""Digests of conversations: equal for what counts as equal, and different for all else."""

import itertools

import duckdb
import pyarrow as pa
import pytest

from clawpipe.core.contracts.schema import schema_of
from clawpipe.data.curation.statements import create_macros

MESSAGES = schema_of("trajectories").field("messages").type
CALLS = (None, [], ["a b"], ["b a"], ["a b", "a b"], ["ab "], [" ab"], ["a b", " "])  # name and arguments of each


@pytest.fixture
def duck():
    with duckdb.connect() as connection:
        create_macros(connection)
        yield connection


def message(role: str, content: str, calls: list[str] | None):
    spoken = [
        dict(zip(("id", "name", "arguments", "malformed"), (k, *call.split(" "), False), strict=True))
        for k, call in enumerate(calls or ())
    ]
    spoken = [call | {"id": str(call["id"])} for call in spoken]
    return {"role": role, "content": content, "tool_calls": None if calls is None else spoken, "tool_call_id": None, "name": None}


def what_counts(messages):
    """All but the ids of calls; no list of calls is an empty one."""
    return repr([(m["role"], m["content"], [(c["name"], c["arguments"]) for c in m["tool_calls"] or ()]) for m in messages])


def digests(duck, expression, values, kind):
    duck.register("given", pa.table({"value": pa.array(values, kind)}))
    return [digest for (digest,) in duck.execute(f"select {expression} from given").fetchall()]


def test_conversations_share_a_digest_if_they_say_the_same(duck):
    said = [message(*parts) for parts in itertools.product(("user", "assistant"), (None, "", "a", "b", "ab"), CALLS)]
    talks = [[], *([one] for one in said), *map(list, itertools.product(said[::3], said[::2]))]
    talks += map(list, itertools.product(said[::7], said[::5], said[::11]))
    found = digests(duck, "body_digest(value)", talks, MESSAGES)
    wanted = list(map(what_counts, talks))
    assert len(set(found)) == len(set(wanted)) == len(set(zip(found, wanted, strict=True)))


def test_only_what_the_policy_said_counts_and_in_plain_words(duck):
    def talk(question, answer, arguments):
        call = {"id": "1", "name": "f", "arguments": arguments, "malformed": False}
        said = message("assistant", answer, [])
        return [message("user", question, []), said | {"tool_calls": [call]}]

    talks = [
        talk("q", "An  answer\n", "x"),
        talk("another", " an ANSWER", "X "),
        talk("q", "an answer", "xy"),
        talk("q", "an answer x", ""),
        talk("q", None, "x"),
        talk("q", "", "x"),
    ]
    found = digests(duck, "reply_digest(value)", talks, MESSAGES)
    assert found[0] == found[1]
    assert len(set(found)) == len(found) - 1


def test_tokens_share_a_digest_if_they_are_the_same(duck):
    streams = [list(ids) for length in range(6) for ids in itertools.product((0, 1, 7), repeat=length)]
    found = digests(duck, "tokens_digest(value)", streams, pa.list_(pa.int32()))
    assert len(set(found)) == len(streams)
