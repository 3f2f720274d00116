"""Texts that spell others: whatever harm they hold, the row is read or set aside with its reason, and the others are stored."""

import gzip
import json
import os

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clawpipe.core.store.artifacts import Store
from clawpipe.core.store.datasets import read_dataset
from clawpipe.core.store.home import Home
from clawpipe.data.importers.read.read import Reader
from clawpipe.data.importers.read.reading import Refusal
from clawpipe.data.ingest.intake.options import Options
from clawpipe.data.ingest.intake.run import ingest
from tests.importers.reading import read_files

SAID = [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]
HARM = {
    "half a surrogate pair": r'"\ud800"',
    "second half first": r'"\udc00\ud800"',
    "as a key": r'{"\udfff": 1}',
    "escaped twice": r'"\u005cud800"',
    "5,000 deep": "[" * 5000 + "]" * 5000,
    "900 deep": "[" * 900 + "]" * 900,
    "300 deep": '{"a":' * 300 + "1" + "}" * 300,
    "a long integer": "1" + "0" * 40,
    "NaN": "NaN",
    "1e400": "1e400",
    "NUL": r'"\u0000"',
    "cut": '{"a": ',
    "a key twice": '{"a": 1, "a": 2}',
    "two values": "{}{}",
    "nothing": "",
}


def hermes(said, heard="ok"):
    turns = [{"from": "human", "value": "q"}, {"from": "gpt", "value": said}, {"from": "tool", "value": heard}]
    return {"conversations": turns}


def asked(**spoken):
    return {"messages": [SAID[0], {"role": "assistant", "content": "a"} | spoken]}


def nested(harm):
    """Rows with it in every text that some reader reads as JSON."""
    call = f'{{"name": "f", "arguments": {{"a": {harm}}}}}'
    tagged = f"<tool_call>\n{call}\n</tool_call>"
    answer = f'<tool_response>\n{{"name": "f", "content": {harm}}}\n</tool_response>'
    tools = {"from": "system", "value": f"<tools>\n[{harm}]\n</tools>"}
    function = {"id": "c", "function": {"name": "f", "arguments": f'{{"a": {harm}}}'}}
    streams = {name: [] for name in ("token_ids", "loss_mask", "logprobs", "turns")}
    names = {"trajectory_id": "t", "group_id": "g", "item_id": "i", "tokens": "none", "kinds": ["main"]}
    return {
        "call of Hermes": hermes(tagged),
        "name of a call": hermes(f'<tool_call>\n{{"name": {harm}, "arguments": {{}}}}\n</tool_call>'),
        "response of Hermes": hermes("<tool_call>\n{}\n</tool_call>", answer),
        "tools of Hermes": {"conversations": [tools, *hermes("a")["conversations"]]},
        "text of OpenClaw": {"session_id": "s", "turn": 1, "messages": SAID[:1], "response_text": tagged},
        "tools as a text": {"messages": SAID, "tools": f"[{harm}]"},
        "calls as a text": asked(tool_calls=f'[{{"name": {harm}, "arguments": {harm}}}]'),
        "arguments": asked(tool_calls=[function]),
        "a speaker's call": {"conversations": [{"from": "human", "value": "q"}, {"from": "function_call", "value": call}]},
        "a typed part": asked(content=[{"type": "tool_call", "value": call}]),
        "a spelled response": {"request": {"messages": SAID[:1]}, "response": f'{{"content": {harm}}}'},
        "extra of clawpipe": names | streams | {"messages": SAID, "extra": f'{{"a": {harm}}}'},
    }


def stored(rows, folder):
    """What an ingest of the rows stores, each between two sound ones."""
    good = [{"messages": [{"role": "user", "content": f"q{number}"}, SAID[1]]} for number in range(len(rows) + 1)]
    given_rows = [row for pair in zip(good, rows, strict=False) for row in pair] + good[-1:]
    file = folder / "a.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in given_rows))
    home = Home(folder / "home")
    done = ingest(home, [str(file)], Options())
    table = read_dataset(Store(home.store), done.datasets["trajectories"])
    return done, table.to_pylist(), len(good)


@pytest.mark.parametrize("harm", HARM.values(), ids=HARM)
def test_harm_within_a_text_takes_no_other_row_with_it(harm, tmp_path):
    """One escaped half of a surrogate pair ended the whole ingest with 70 and stored nothing."""
    rows = list(nested(harm).values())
    done, trajectories, sound = stored(rows, tmp_path)
    assert done.accepted + sum(done.refused.values()) == done.reading.lines == len(rows) + sound
    questions = {row["messages"][0]["content"] for row in trajectories}
    assert {f"q{number}" for number in range(sound)} <= questions


def test_the_reason_is_that_of_a_line(tmp_path):
    for place, row in nested(HARM["half a surrogate pair"]).items():
        (tmp_path / "a.jsonl").write_text(json.dumps(row))
        reading = read_files([str(tmp_path / "a.jsonl")])
        reasons = [refusal.reason for refusal in reading.refused]
        assert reasons in ([], ["half a surrogate pair"]), place
    assert place == "extra of clawpipe"
    assert reasons


TEXT = st.text(st.characters(), max_size=6)  # half surrogate pairs among them
INNER = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXT,
    lambda part: st.lists(part, max_size=2) | st.dictionaries(TEXT, part, max_size=2),
    max_leaves=5,
)
SPELLED = INNER.map(json.dumps) | st.sampled_from(list(HARM.values())) | TEXT.map(lambda text: json.dumps(text)[1:-1])


@settings(deadline=None, max_examples=300)
@given(harm=SPELLED, place=st.sampled_from(sorted(nested("0"))), cut=st.integers(0, 3))
def test_any_nested_json_text_is_refused_or_storable(harm, place, cut, tmp_path_factory):
    row = json.dumps(nested(harm[cut:] if cut < 3 else harm)[place]).encode()
    file = tmp_path_factory.getbasetemp() / "one.jsonl"
    file.write_bytes(row + b"\n")
    reader = Reader()
    found = [*reader.file(str(file)), *reader.sessions()]
    assert reader.reading.lines == 1 == reader.reading.accepted + sum(reader.reading.reasons().values())
    for record in found:
        if not isinstance(record, Refusal):
            json.dumps([message.as_dict() for message in record.messages], ensure_ascii=False).encode()
            json.dumps([record.extra, record.tools], ensure_ascii=False).encode()


def test_a_file_whose_name_is_not_utf_8_is_read(tmp_path):
    """Its name is written with `\\xNN`; it ended the ingest with 70."""
    folder = bytes(tmp_path) + b"/files"
    os.mkdir(folder)
    for name in (b"caf\xe9.jsonl", b"plain.jsonl"):
        with open(folder + b"/" + name, "wb") as file:
            file.write(json.dumps({"messages": [{"role": "user", "content": str(name)}, SAID[1]]}).encode() + b"\nno JSON\n")
    home = Home(tmp_path / "home")
    done = ingest(home, [str(tmp_path / "files")], Options())
    rows = read_dataset(Store(home.store), done.datasets["trajectories"]).to_pylist()
    assert [row["origin"]["file"].rpartition("/")[2] for row in rows] == ["caf\\xe9.jsonl", "plain.jsonl"]
    assert (done.accepted, sum(done.refused.values())) == (2, 2)
    assert ingest(home, [str(tmp_path / "files")], Options()).reading.lines == 0


def test_calls_in_a_table_get_no_argument_that_they_never_had(tmp_path):
    """A column of structs has the fields of all rows: a call without `path` said `path: null`."""
    calls = [{"name": "read", "arguments": {"path": "a"}}, {"name": "list", "arguments": {"depth": 1}}]
    rows = [{"messages": [SAID[0], SAID[1] | {"tool_calls": [call]}]} for call in calls]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "a.parquet")
    told = [one.messages[1].tool_calls[0].arguments for one in read_files([str(tmp_path / "a.parquet")]).conversations]
    assert list(map(json.loads, told)) == [call["arguments"] for call in calls]
    (tmp_path / "b.jsonl").write_text(json.dumps(asked(tool_calls=[{"name": "f", "arguments": {"path": None}}])))
    [one] = read_files([str(tmp_path / "b.jsonl")]).conversations
    assert json.loads(one.messages[1].tool_calls[0].arguments) == {"path": None}


def test_whole_elements_of_a_truncated_packed_array_are_read(tmp_path):
    rows = [{"messages": [{"role": "user", "content": f"q{number * 7919:x}"}, SAID[1]]} for number in range(2000)]
    data = gzip.compress(json.dumps(rows, indent=1).encode())
    (tmp_path / "a.json.gz").write_bytes(data[: len(data) // 2])
    reading = read_files([str(tmp_path / "a.json.gz")])
    assert 500 < len(reading.conversations) < 1500
    assert [one.prompt for one in reading.conversations] == [
        row["messages"][0]["content"] for row in rows[: len(reading.conversations)]
    ]
    assert [refusal.reason for refusal in reading.refused] == ["file cannot be read on: EOFError"]
    assert reading.lines == len(reading.conversations) + 1
