"""Turns that are stored already: a turn that stands in the history of another request is not, before its own request was read."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from clawpipe.core.contracts.schema import schema_of
from clawpipe.core.conversation.messages import Message
from clawpipe.core.store.datasets import dataset_files, dataset_ref, publish_dataset, read_dataset
from clawpipe.data.forgotten.tombstones import Tombstone, Tombstones, write_tombstones
from clawpipe.data.ingest.intake.claims import Claim
from clawpipe.data.ingest.intake.repeats import Repeats, turn_digests, whole_digest
from clawpipe.data.ingest.intake.rows import messages_json

SAID = ("question 1", "answer 1", "question 2", "answer 2", "question 3", "answer 3")
ANSWERED = [SAID[:2], SAID[:4], SAID]


def _spoken(said):
    return [{"role": role, "content": text} for role, text in zip(["user", "assistant"] * len(said), said, strict=False)]


def _request(said):
    answer = {"choices": [{"message": {"role": "assistant", "content": said[-1]}, "finish_reason": "stop"}]}
    return {"session_id": "s", "request": {"messages": _spoken(said[:-1])}, "response": answer}


def _generation(said):
    """As Langfuse exports it: without the reason of its end."""
    output = {"role": "assistant", "content": said[-1]}
    return {"type": "GENERATION", "traceId": f"t{len(said)}", "sessionId": "s", "input": _spoken(said[:-1]), "output": output}


def _sampled(said):
    """A request with the tokens of its answer, as an engine logs it."""
    entries = [{"token": "a", "logprob": -0.5}, {"token": "b", "logprob": -0.1}]
    [choice] = _request(said)["response"]["choices"]
    choice |= {"token_ids": [20, 2], "logprobs": {"content": entries}}
    return _request(said) | {"response": {"prompt_token_ids": list(range(3, 4 + len(said))), "choices": [choice]}}


def _taught(rows):
    """The answers that rows teach, by the kinds of their turns."""
    found = []
    for row in rows:
        replies = [one["content"] for one in row["messages"] if one["role"] == "assistant"]
        kinds = [turn["kind"] for turn in row["turns"]] or row["kinds"]
        found += [text for text, kind in zip(replies[-len(kinds) :], kinds, strict=True) if kind == "main"]
    return found


@pytest.mark.parametrize("form", [_request, _generation, _sampled])
@pytest.mark.parametrize("runs", [1, 3], ids=["in one file", "night by night"])
def test_a_log_that_begins_with_the_newest_teaches_all(desk, make, form, runs):
    lines = [make.lines(form(said)) for said in reversed(ANSWERED)]
    for number, data in enumerate(lines if runs == 3 else [b"".join(lines)]):
        desk.write(f"{number}.jsonl", data)
        desk.ingest()
    assert _taught(desk.stored()) == ["answer 3", "answer 2", "answer 1"]


@pytest.mark.parametrize("runs", [1, 2], ids=["in one run", "on the next night"])
def test_a_transcript_teaches_what_its_log_left_out(desk, make, runs):
    desk.write("log.jsonl", make.lines(_request(SAID[:4])))
    if runs == 2:
        desk.ingest()
    desk.write("session.jsonl", make.lines({"session_id": "s", "messages": _spoken(SAID)}))
    desk.ingest()
    assert _taught(desk.stored()) == ["answer 2", "answer 1", "answer 3"]


def _weighed(*weights, **fields):
    said = _spoken(SAID[: 2 * len(weights)])
    return {"messages": [one | {"weight": weights[place // 2]} if place % 2 else one for place, one in enumerate(said)]} | fields


@pytest.mark.parametrize("fields", [{}, {"session_id": "s"}], ids=["no session", "session"])
@pytest.mark.parametrize("grown", [False, True], ids=["at once", "appended"])
def test_other_weights_teach_other_turns_of_one_text(desk, make, fields, grown):
    first, other = make.lines(_weighed(0, 1, **fields)), make.lines(_weighed(1, 0, **fields))
    desk.write("a.jsonl", first if grown else first + other)
    desk.ingest()
    desk.append("a.jsonl", other if grown else b"")
    desk.ingest()
    assert _taught(desk.stored()) == ["answer 2", "answer 1"]


def test_a_retry_in_the_new_part_of_a_log_is_no_attempt(desk, make):
    retried = make.lines(_generation(SAID))
    desk.write("a.jsonl", retried)
    desk.ingest()
    desk.append("a.jsonl", retried)
    assert (desk.ingest().counts["repeated"], _taught(desk.stored())) == (1, ["answer 3"])


def test_a_namesake_in_another_folder_changes_no_session(desk, make):
    for name in ("a", "b"):
        (desk.folder / name).mkdir()
    desk.write("a/chat.jsonl", make.lines(*_spoken(["hi", "Hello!"])))
    desk.ingest()
    desk.append("a/chat.jsonl", make.lines(*_spoken(["more", "Sure."])))
    desk.write("b/chat.jsonl", make.lines(*_spoken(["hi", "Hello!"])))
    desk.ingest()
    found = [(row["session_id"], row["kinds"]) for row in desk.stored()]
    assert found == [("a/chat", ["main"]), ("a/chat", ["side", "main"]), ("b/chat", ["main"])]


def _renamed(desk, session):
    """Store the rows of the last run as an earlier release did."""
    [log] = (desk.home.root / "ingest").glob("*.json")
    state = json.loads(log.read_bytes())
    [digest] = state["datasets"]["trajectories"]
    rows = read_dataset(desk.store, dataset_ref(desk.store, "trajectories", digest)).to_pylist()
    named = [row | {"session_id": session, "trajectory_id": f"{index:032}"} for index, row in enumerate(rows)]
    old = publish_dataset(desk.store, "trajectories", [pa.Table.from_pylist(named, schema=schema_of("trajectories"))])
    state["datasets"]["trajectories"] = [old.digest]
    log.write_text(json.dumps(state))


def test_a_session_under_its_name_of_earlier_goes_on(desk, make):
    """Earlier releases named it by the file alone."""
    desk.write("chat.jsonl", make.lines(*_spoken(["hi", "Hello!"])))
    desk.ingest()
    _renamed(desk, "chat")
    desk.append("chat.jsonl", make.lines(*_spoken(["more", "Sure."])))
    [row] = desk.rows(desk.ingest())
    assert (row["session_id"], row["kinds"]) == ("agent/chat", ["side", "main"])


def test_a_session_that_was_forgotten_under_that_name_stays_so(desk, make):
    stones = Tombstones()
    digest = stones.digest("session", "chat")
    stone = {"digest": digest, "kind": "session", "date": "d", "rows": (), "trajectories": 0, "replaced": {}, "models": ()}
    write_tombstones(desk.home, stones.with_stone(Tombstone.model_validate(stone)))
    desk.write("chat.jsonl", make.lines(*_spoken(["hi", "Hello!"])))
    assert desk.rows(desk.ingest()) == []


def test_rows_of_an_older_release_say_what_they_teach(desk, make):
    """Its files lack the column of kinds: all of their turns were taught."""
    desk.write("a.jsonl", make.lines({"session_id": "s", "messages": _spoken(SAID[:2])}))
    [ref] = desk.ingest().datasets.values()
    [file] = dataset_files(desk.store, ref)
    old = desk.folder / "old.parquet"
    pq.write_table(pq.read_table(file).drop_columns(["kinds"]), old)
    said = [Message(**one) for one in _spoken(SAID[:4])]
    whole = whole_digest("s", None, messages_json(said))
    claim = Claim("i", None, b"c", "s", turn_digests("s", None, said), whole, b"\1\1", ("f", 1, 1))
    assert Repeats(desk.store, [old]).known_turns([claim]) == [[0]]


def test_an_agents_span_that_comes_a_day_later_repeats_its_calls(desk, make):
    def span(operation, answer):
        said = {"gen_ai.input.messages": [{"role": "user", "content": "2+2?"}], "gen_ai.operation.name": operation}
        answers = {"gen_ai.output.messages": [{"role": "assistant", "content": answer}]}
        return {"traceId": "t", "attributes": said | answers}

    desk.write("a.jsonl", make.lines(span("chat", "4")))
    desk.ingest()
    desk.append("a.jsonl", make.lines(span("invoke_agent", "So 4.")))
    report = desk.ingest_report()
    assert (report["trajectories"], report["quarantined"]) == (
        0,
        {"a record of an agent, a chain or a trace, beside those of its calls": 1},
    )
    assert [row["messages"][-1]["content"] for row in desk.stored()] == ["4"]
