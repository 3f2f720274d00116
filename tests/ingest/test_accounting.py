"""accepted + quarantined = lines, whatever the lines are."""

import json
import tempfile
from pathlib import Path

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from clawpipe.core.store.artifacts import Store
from clawpipe.core.store.datasets import read_dataset
from clawpipe.core.store.home import Home
from clawpipe.data.ingest.intake.options import Options
from clawpipe.data.ingest.intake.run import ingest
from tests.importers.test_hostile import is_foreign

HOSTILE = [
    b"",
    b"   ",
    b"null",
    b"[1]",
    b'"text"',
    b"{",
    b"{}",
    b"\xff\xfe",
    b"\xef\xbb\xbf{}",
    b"[" * 5000,
    b'{"a":' * 5000 + b"1" + b"}" * 5000,
    b'{"messages": NaN}',
    b'{"messages": 1e400}',
    b'{"messages": [], "messages": []}',
    b'{"messages": [{"role": "user", "content": "\\u0000"}]}',
    b'{"messages": [{"role": "user", "content": "\\ud800"}]}',
    b'{"messages": [{"role": "user", "content": "a"}]}',
    b'{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}], "session_id": "../../etc/passwd"}',
    b'{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}], "tools": 7}',
    b'{"conversations": [{"from": "gpt", "value": 3}]}',
    b'{"conversations": [{"from": "human", "value": "\'; drop table x; --"}, {"from": "gpt", "value": "<tool_call>\\n{"}]}',
    b'{"tokens": [[1, 99999999999]], "masks": [[-100, 2]], "scores": [1], "messages": [[]]}',
    b'{"tokens": [], "masks": [], "scores": [], "messages": []}',
    b'{"session_id": "s", "turn": 1, "messages": [], "response_text": "a"}',
    b'{"session_id": "s", "turn": 1, "messages": [{"role": "user", "content": "a"}], "response_text": "a"}',
    b'{"session_id": "s", "turn": 99999999999999999999, "votes": [], "score": 1}',
    b'{"prompt": "a", "chosen": "b", "rejected": "b"}',
    b'{"prompt": "a", "chosen": "b", "rejected": "c"}',
    b'{"prompt": "a"}',
]
PACKED_BEGIN_WITH = (b"\x1f\x8b", b"BZh", b"\xfd7zXZ\x00", b"\x28\xb5\x2f\xfd")  # such a file has the lines that it unpacks to
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda part: st.lists(part, max_size=3) | st.dictionaries(st.text(max_size=3), part, max_size=3),
    max_leaves=8,
)
fields = st.sampled_from(
    [
        *("messages", "conversations", "tokens", "masks", "scores", "session_id", "turn", "response_text", "votes"),
        *("prompt", "chosen", "rejected", "score"),
    ]
)
records = st.dictionaries(fields, values, max_size=6).map(lambda row: json.dumps(row).encode())
lines = st.sampled_from(HOSTILE) | records | st.binary(max_size=20).filter(lambda data: not {10, 13} & set(data))


@settings(max_examples=15, deadline=None)
@given(st.lists(lines, max_size=12), st.booleans())
def test_every_line_is_accounted_for(given_lines, ended):
    data = b"\n".join(given_lines) + (b"\n" if ended and given_lines else b"")
    assume(not data.startswith(PACKED_BEGIN_WITH))
    assume(not is_foreign(data))
    with tempfile.TemporaryDirectory() as scratch:
        home, file = Home(Path(scratch) / "home"), Path(scratch) / "a.jsonl"
        file.write_bytes(data)
        done = ingest(home, [str(file)], Options())
        quarantined = sum(map(lines_of, rows(Store(home.store), done.datasets.get("quarantine"))))
        assert done.reading.lines == len(data.split(b"\n")) - (not data or data.endswith(b"\n"))
        assert done.accepted + sum(done.refused.values()) == done.reading.lines
        assert quarantined == sum(done.refused.values())
        ref = done.datasets["trajectories"]
        assert read_dataset(Store(home.store), ref).num_rows == ref.rows == done.counts["trajectories"]


def rows(store, ref):
    return read_dataset(store, ref).to_pylist() if ref else []


def lines_of(row):
    """How many lines a row of quarantine stands for: its name ends with `:first@offset` or `:first-last@offset`."""
    place = row["row_id"].rpartition(":")[2].partition("@")[0]
    first, _, last = place.partition("-")
    return int(last or first) - int(first) + 1


def test_many_blank_lines_are_one_row(desk, make):
    """Two million of them were two million rows."""
    good = make.lines(make.chat("q", "a"))
    desk.write("a.jsonl", b"\n \n\r\n" + good + b"\n" * 20_000 + good + b"\n")
    report = desk.ingest_report()
    assert (report["lines"], report["accepted"], report["quarantined"]) == (20_006, 2, {"blank line": 20_004})
    stored = desk.stored("quarantine")
    assert [row["row_id"].rpartition(":")[2] for row in stored] == [
        "1-3@0",
        f"5-20004@{5 + len(good)}",
        f"20006@{20_005 + 2 * len(good)}",
    ]
    assert sum(map(lines_of, stored)) == 20_004


def test_all_hostile_lines_at_once(desk):
    desk.write("a.jsonl", b"\n".join(HOSTILE) + b"\n")
    report = desk.ingest_report()
    assert report["lines"] == len(HOSTILE)
    assert report["accepted"] + sum(report["quarantined"].values()) == len(HOSTILE)
    row_ids = [row["row_id"] for row in desk.stored("quarantine")]
    offsets = {line: int(offset) for line, offset in (row_id.rsplit(":", 1)[1].split("@") for row_id in row_ids if "@" in row_id)}
    assert offsets["1-2"] == 0
    assert offsets["3"] == len(HOSTILE[0]) + len(HOSTILE[1]) + 2


def test_values_without_a_column_are_refused_with_place_and_text(desk, make):
    pair = {"prompt": "a", "chosen": "b", "rejected": "b"}
    many = make.batch_row("a", "b", tool_stats={"t": {"count": 2**40}}, tool_error_counts={"t": 0})
    other = make.group(0.0, 1.0)
    given = [make.chat("a", "b"), pair, many, {"prompt": []}, other]
    data = make.lines(*given)
    desk.write("a.jsonl", data)
    report = desk.ingest_report()
    assert (report["lines"], report["accepted"], sum(report["quarantined"].values())) == (5, 2, 3)
    for row in desk.stored("quarantine"):
        place, _, offset = row["row_id"].partition("@")
        number = int(place.rpartition(":")[2])
        assert row["row"] == json.dumps(given[number - 1])
        assert data[int(offset) :].startswith(row["row"].encode())
