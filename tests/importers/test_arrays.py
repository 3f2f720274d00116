"""Files that hold one JSON array, or indented objects: elements count as lines do."""

import gzip
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clawpipe.data.importers.sources.arrays import spans_of
from tests.importers.reading import read_files


def chat(said: str, **fields):
    return {"messages": [{"role": "user", "content": said}, {"role": "assistant", "content": "a"}]} | fields


CHATS = [chat('one ] " \\ {'), chat("two"), chat("three", session_id="s", more={"x": [1, [2]]})]


@pytest.mark.parametrize("indent", [None, 0, 2])
@pytest.mark.parametrize("suffix", [".json", ".jsonl", ".json.gz"])
def test_elements_are_read_with_their_places(indent, suffix, tmp_path):
    file, data = tmp_path / f"a{suffix}", json.dumps(CHATS, indent=indent).encode() + b"\n"
    file.write_bytes(gzip.compress(data) if suffix.endswith("gz") else data)
    reading = read_files([str(file)])
    assert [one.prompt for one in reading.conversations] == [one["messages"][0]["content"] for one in CHATS]
    assert [one.origin.line for one in reading.conversations if one.origin] == [1, 2, 3]
    assert (reading.lines, reading.refused) == (3, [])


def test_broken_elements_are_rejected_one_by_one(tmp_path):
    good = json.dumps(CHATS[1])
    broken = {
        '{"a": 1, "a": 2}': "key given twice",
        '{"a": NaN}': "NaN or an infinite number",
        "[1]": "not a JSON object",
        '{"a": 1e999}': "number out of range",
    }
    data = f"[{good},\n" + ",\n".join(broken) + f", {good} ]"
    (tmp_path / "a.json").write_text(data)
    reading = read_files([str(tmp_path / "a.json")])
    assert [(one.offset, one.reason) for one in reading.refused] == [(data.index(text), reason) for text, reason in broken.items()]
    assert (reading.lines, len(reading.conversations)) == (6, 2)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[",
        b"[]",
        b"[1]",
        b'[{"a": 1}',
        b'[{"a": 1}] x',
        b'[{"a": 1}]\n{"a": 1}',
        b'[{"a": 1} {"b": 2}]',
        b'[{"a": 1}, 7]',
        b'[{"a": "]',
    ],
)
def test_anything_else_is_lines(data, tmp_path):
    (tmp_path / "a.json").write_bytes(data)
    reading = read_files([str(tmp_path / "a.json")])
    assert spans_of(data) is None
    assert reading.lines == len(reading.refused) == len(data.splitlines())


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("suffix", [".json", ".jsonl", ".json.gz"])
def test_indented_objects_are_read_with_their_places(count, suffix, tmp_path):
    file, parts = tmp_path / f"a{suffix}", [json.dumps(one, indent=2).encode() for one in CHATS[:count]]
    data = b"\n".join(parts) + b"\n"
    file.write_bytes(gzip.compress(data) if suffix.endswith("gz") else data)
    reading = read_files([str(file)])
    assert [one.prompt for one in reading.conversations] == [one["messages"][0]["content"] for one in CHATS[:count]]
    assert [one.origin.line for one in reading.conversations if one.origin] == [1, 2, 3][:count]
    assert (reading.lines, reading.refused, reading.places[str(file)].offset) == (count, [], len(data) - 1)


def test_an_indented_object_that_is_no_record_is_one_line(tmp_path):
    (tmp_path / "checkpoint.json").write_text(json.dumps({"run_name": "r", "completed_prompts": [*range(99)]}, indent=2))
    reading = read_files([str(tmp_path)])
    assert (reading.lines, [one.reason for one in reading.refused]) == (1, ["no known format"])


@pytest.mark.parametrize(
    "data", [b"{\n", b'{\n"a": 1}\nx', b'{\n"a": 1}\n{"b": 2', b'{\n"a": 1},\n{"b": 2}', b'{\n"a": 1}}', b'{\n"a": "}']
)
def test_what_is_not_whole_is_lines(data, tmp_path):
    (tmp_path / "a.json").write_bytes(data)
    reading = read_files([str(tmp_path / "a.json")])
    assert spans_of(data) is None
    assert reading.lines == len(data.splitlines())


@pytest.mark.parametrize("head", ["{", '{\n  "id": 1,', '{\n"x"'])
def test_good_rows_after_a_truncated_object_stay_rows(head, tmp_path):
    good = json.dumps(CHATS[0])
    (tmp_path / "a.jsonl").write_text("\n".join([head, good, good, "}"]))
    reading = read_files([str(tmp_path)])
    assert (len(reading.conversations), reading.lines) == (2, len(head.splitlines()) + 3)


def test_lines_of_objects_are_no_indented_ones():
    assert spans_of(b'{"a": 1}\n{"b": 2}\n') is None


_VALUE = st.recursive(
    st.none() | st.integers() | st.text(), lambda part: st.lists(part) | st.dictionaries(st.text(), part), max_leaves=8
)
_OBJECT = st.dictionaries(st.text(), _VALUE)


@given(_OBJECT, st.lists(_OBJECT | st.lists(_VALUE)), st.sampled_from([None, 0, 1]), st.booleans())
def test_spans_cut_any_array_at_its_elements(first, others, indent, ascii_only):
    data = json.dumps([first, *others], indent=indent, ensure_ascii=ascii_only).encode()
    spans = spans_of(data)
    assert spans is not None
    assert [json.loads(data[begin:end]) for begin, end in spans] == [first, *others]


@given(_OBJECT.filter(bool), st.lists(_OBJECT | st.lists(_VALUE)), st.sampled_from([0, 1]), st.sampled_from(["", " ", "\n\n"]))
def test_spans_cut_indented_objects_where_they_end(first, others, indent, between):
    data = between.join(json.dumps(value, indent=indent) for value in (first, *others)).encode()
    spans = spans_of(data)
    assert spans is not None
    assert [json.loads(data[begin:end]) for begin, end in spans] == [first, *others]
