"""Lines that mean harm, or came to harm: each is set aside for one reason with its place, and none takes another with it."""

import gzip
import json

import pytest
import zstandard
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from clawpipe.data.importers.sources.foreign import ForeignFileError, refuse_foreign
from clawpipe.data.importers.strict_json import MAX_LINE
from tests.importers.reading import read_files


def chat(**fields):
    messages = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "hey"}]
    return {"messages": messages, "session_id": "a"} | fields


GOOD = json.dumps(chat()).encode()


def inside(value: bytes) -> bytes:
    """A sound chat but for one field."""
    return GOOD[:-1] + b', "more": ' + value + b"}"


HOSTILE: dict[str, tuple[bytes, str]] = {
    "cut": (GOOD[:-3], "not JSON"),
    "no JSON": (b"hello", "not JSON"),
    "raw NUL": (inside(b'"\x00"'), "not JSON"),
    "NUL alone": (b"\x00", "not JSON"),
    "escaped NUL": (inside(rb'"a\u0000b"'), "NUL in a text"),
    "escaped NUL in a key": (inside(rb'{"a\u0000": 1}'), "NUL in a text"),
    "lone surrogate": (inside(rb'"\ud800"'), "half a surrogate pair"),
    "second half first": (inside(rb'"\udc00\ud800"'), "half a surrogate pair"),
    "encoded surrogate": (inside(b'"\xed\xa0\x80"'), "not UTF-8"),
    "invalid UTF-8": (inside(b'"\xff"'), "not UTF-8"),
    "byte order mark": (b"\xef\xbb\xbf" + GOOD, "byte order mark"),
    "UTF-16": ("{}".encode("utf-16"), "not UTF-8"),
    "array": (b"[" + GOOD + b"]", "not a JSON object"),
    "scalar": (b"7", "not a JSON object"),
    "null": (b"null", "not a JSON object"),
    "NaN": (inside(b"NaN"), "NaN or an infinite number"),
    "Infinity": (inside(b"-Infinity"), "NaN or an infinite number"),
    "1e400": (inside(b"1e400"), "number out of range"),
    "-1e400": (inside(b"[0.5, -1e400]"), "number out of range"),
    "trailing comma": (GOOD[:-1] + b",}", "not JSON"),
    "trailing comma in a list": (inside(b"[1,]"), "not JSON"),
    "comment": (GOOD + b" // yes", "not JSON"),
    "two objects": (GOOD + GOOD, "not JSON"),
    "two objects, spaced": (GOOD + b" " + GOOD, "not JSON"),
    "key twice": (GOOD[:-1] + b', "session_id": "b"}', "key given twice"),
    "key twice, escaped": (GOOD[:-1] + rb', "session\u005fid": "b"}', "key given twice"),
    "key twice, deep": (inside(b'[{"x": [{"k": 1, "k": 1}]}]'), "key given twice"),
    "5,000 deep list": (inside(b"[" * 5000 + b"]" * 5000), "nested too deeply"),
    "5,000 deep object": (inside(b'{"a":' * 5000 + b"1" + b"}" * 5000), "nested too deeply"),
    "blank": (b"", "blank line"),
    "white space": (b" \t ", "blank line"),
    "no format": (b'{"what": 1}', "no known format"),
    "path as session": (json.dumps(chat(session_id="../../x")).encode(), "session_id: a path"),
    "absolute path as session": (json.dumps(chat(session_id="/etc/cron.d/x")).encode(), "session_id: a path"),
    "path as user": (json.dumps(chat(user="a\\..\\b")).encode(), "user_id: a path"),
}


def places(data: bytes) -> list[int]:
    """Where each line begins."""
    return [0, *(at + 1 for at, byte in enumerate(data) if byte == 10 and at + 1 < len(data))] if data else []


def by_hand(data: bytes) -> int:
    """How many lines an editor shows."""
    return data.count(b"\n") + (not data.endswith(b"\n") and bool(data))


@pytest.mark.parametrize(("line", "reason"), HOSTILE.values(), ids=HOSTILE)
@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
def test_a_hostile_line_is_rejected_with_its_place(line, reason, end, tmp_path):
    file = tmp_path / "a.jsonl"
    file.write_bytes(end.join([GOOD, line, GOOD, b""]))
    reading = read_files([str(file)])
    assert [(refusal.line, refusal.offset, refusal.reason) for refusal in reading.refused] == [(2, len(GOOD + end), reason)]
    assert (reading.lines, len(reading.conversations)) == (3, 2)


def test_all_of_them_together_are_told_one_by_one(tmp_path):
    file = tmp_path / "a.jsonl"
    data = b"\n".join(line for line, _ in HOSTILE.values())
    file.write_bytes(data)
    reading = read_files([str(file)])
    assert [refusal.reason for refusal in reading.refused for _ in range(refusal.lines)] == [
        reason for _, reason in HOSTILE.values()
    ]
    assert [refusal.offset for refusal in reading.refused] == [places(data)[refusal.line - 1] for refusal in reading.refused]
    assert [refusal.lines for refusal in reading.refused if refusal.reason == "blank line"] == [2]
    assert sum(reading.reasons().values()) == reading.lines == by_hand(data)


@pytest.mark.parametrize(
    "line",
    [
        json.dumps(chat(more="'; drop table rows; --")).encode(),
        inside(rb'"\\u0000"'),
        inside(b"[" * 60 + b"]" * 60),
        inside(b"1e308"),
        inside(b"[1e-400]"),
        inside("\u2028 \U0001f600 \u202e".encode().join([b'"', b'"'])),
        json.dumps(chat(session_id="agent:main/telegram..bob")).encode(),
        json.dumps(chat(__proto__={}, **{"": 1, "a.b": 2})).encode(),
    ],
)
def test_what_is_only_strange_is_data(line, tmp_path):
    (tmp_path / "a.jsonl").write_bytes(line + b"\r\n")
    reading = read_files([str(tmp_path / "a.jsonl")])
    assert (reading.refused, len(reading.conversations)) == ([], 1)


def test_a_line_of_200_mb_is_passed_over(tmp_path):
    file = tmp_path / "a.jsonl"
    size = 200 << 20
    with file.open("wb") as stream:
        stream.write(GOOD + b'\n{"messages": "')
        for _ in range(200):
            stream.write(b"x" * (size // 200))
        stream.write(b'"}\n' + GOOD + b"\nno JSON\n")
    reading = read_files([str(file)])
    after = len(GOOD) + 1 + len(b'{"messages": ""}\n') + size
    told = [(refusal.line, refusal.offset, refusal.reason) for refusal in reading.refused]
    assert told == [(2, len(GOOD) + 1, "line too long"), (4, after + len(GOOD) + 1, "not JSON")]
    assert (reading.lines, len(reading.conversations)) == (4, 2)


@pytest.mark.parametrize(("size", "told"), [(MAX_LINE, []), (MAX_LINE + 1, ["line too long"])])
def test_the_limit_of_a_line_is_exact(size, told, tmp_path):
    line = inside(b'"' + b"x" * (size - len(inside(b'""'))) + b'"')
    (tmp_path / "a.jsonl").write_bytes(line + b"\n" + GOOD)
    assert [refusal.reason for refusal in read_files([str(tmp_path / "a.jsonl")]).refused] == told


def compressed(data: bytes, suffix: str) -> bytes:
    return gzip.compress(data) if suffix == "gz" else zstandard.compress(data)


@pytest.mark.parametrize("suffix", ["gz", "zst"])
def test_a_compressed_file_that_breaks_off_says_where(suffix, tmp_path):
    lines = [json.dumps(chat(session_id=f"s{number}", more=f"{number * 7919:x}")).encode() for number in range(5000)]
    file = tmp_path / f"a.jsonl.{suffix}"
    whole = compressed(b"\n".join(lines), suffix)
    for cut in (len(whole) // 2, len(whole) - 1, 5):
        file.write_bytes(whole[:cut])
        reading = read_files([str(file)])
        [refusal] = reading.refused[-1:]
        assert refusal.reason.startswith("file cannot be read on: ")
        assert (refusal.line, reading.lines) == (reading.lines, len(reading.conversations) + len(reading.refused))
        if len(reading.refused) == 1:  # it broke off between two lines that are whole
            assert refusal.offset == sum(len(line) + 1 for line in lines[: refusal.line - 1])


@pytest.mark.parametrize("suffix", ["gz", "zst"])
def test_a_file_that_is_not_compressed_at_all_is_told(suffix, tmp_path):
    file = tmp_path / f"a.jsonl.{suffix}"
    file.write_bytes(GOOD + b"\n")
    reading = read_files([str(file)])
    assert (reading.lines, len(reading.refused), reading.refused[0].line, reading.refused[0].offset) == (1, 1, 1, 0)


_LINE = st.one_of(
    st.binary(max_size=40),
    st.sampled_from([GOOD, *(line for line, _ in HOSTILE.values() if len(line) < 300)]),
    st.builds(
        lambda line, at, byte: line[:at] + byte + line[at + 1 :],
        st.just(GOOD),
        st.integers(0, 90),
        st.binary(min_size=1, max_size=2),
    ),
)


def is_foreign(data):
    try:
        refuse_foreign(data)
    except ForeignFileError:
        return True
    return False


@given(
    lines=st.lists(_LINE, max_size=8),
    end=st.sampled_from([b"\n", b"\r\n"]),
    ended=st.booleans(),
    suffix=st.sampled_from(["", ".gz", ".zst"]),
)
@settings(deadline=None, max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_accepted_and_rejected_are_all_lines_of_any_bytes(lines, end, ended, suffix, tmp_path):
    data = end.join(lines) + (end if ended else b"")
    file = tmp_path / f"a.jsonl{suffix}"
    file.write_bytes(compressed(data, suffix[1:]) if suffix else data)
    reading = read_files([str(file)])
    assert reading.lines == sum(reading.formats.values()) + sum(refusal.lines for refusal in reading.refused)
    assume(data.lstrip().partition(b"\n")[0].strip() != b"{")  # it may be an indented object
    assume(data.lstrip()[:1] != b"[")  # of an array its elements count, and no blank lines around it
    assume(suffix or not data.startswith((b"\x1f\x8b", b"BZh", b"\xfd7zXZ\x00", b"\x28\xb5\x2f\xfd")))  # it may be packed
    assume(not is_foreign(data))  # one refusal names the kind of the whole file
    starts = places(data)
    assert reading.lines == by_hand(data)
    assert all(refusal.reason and refusal.offset == starts[refusal.line - 1] for refusal in reading.refused)
    assert sorted({refusal.line for refusal in reading.refused}) == [refusal.line for refusal in reading.refused]


@given(data=st.binary(max_size=200), suffix=st.sampled_from([".gz", ".zst"]))
@settings(deadline=None, max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_bytes_may_call_themselves_compressed(data, suffix, tmp_path):
    file = tmp_path / f"a.jsonl{suffix}"
    file.write_bytes(data)
    reading = read_files([str(file)])
    assert reading.lines == sum(reading.formats.values()) + sum(refusal.lines for refusal in reading.refused)
    assert all(refusal.reason and refusal.offset >= 0 for refusal in reading.refused)
