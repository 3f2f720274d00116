"""Records spread over the lines of a file: nothing is joined over a line that cannot be read, and each file is a session."""

import json
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from clawpipe.data.importers.read.spread import AFTER_A_GAP, session_of
from tests.importers.reading import read_files

ASK = '{"role":"user","content":"weather?"}'
CALL = '{"role":"assistant","content":"","tool_calls":[{"id":"c","function":{"name":"w","arguments":"{}"}}]}'
HEARD = '{"role":"tool","tool_call_id":"c","content":"3"}'
SAY = '{"role":"assistant","content":"3 degrees"}'
WHOLE = ["user", "assistant", "tool", "assistant"]


@dataclass(frozen=True)
class Case:
    """Lines of a transcript, the roles that are read of them, and the numbers of the lines that stand behind a gap."""

    lines: list[str]
    roles: list[str]
    behind: list[int]


@pytest.mark.parametrize(
    "case",
    [
        Case([ASK, CALL, '{"foreign":1}', HEARD, SAY], ["user", "assistant"], [4, 5]),
        Case([ASK, CALL, HEARD, SAY, '{"role":"user","con', SAY], WHOLE, [6]),
        Case([ASK, CALL, '{"role":"tool","tool_call_id":"c","content":', SAY], ["user", "assistant"], [4]),
        Case([ASK, CALL, '{"prompt":"another form"}', SAY], ["user", "assistant"], [4]),
        Case([ASK, CALL, HEARD, SAY, ASK, '{"role":"assis'], [*WHOLE, "user"], []),
        Case(['{"role":"user","conte', CALL, HEARD, SAY], [], [2, 3, 4]),
        Case([ASK, "", "", CALL, HEARD, "", SAY], WHOLE, []),
    ],
    ids=["foreign", "no json", "broken result", "another form", "broken end", "broken beginning", "blank"],
)
@pytest.mark.parametrize("end", ["\n", "\r\n"], ids=["lf", "crlf"])
def test_nothing_is_joined_over_a_gap(tmp_path, case, end):
    (tmp_path / "a.jsonl").write_bytes(end.join([*case.lines, ""]).encode())
    reading = read_files([str(tmp_path / "a.jsonl")])
    assert [[message.role for message in one.messages] for one in reading.conversations] == ([case.roles] if case.roles else [])
    assert [one.line for one in reading.refused if one.reason == AFTER_A_GAP] == case.behind
    refused = sum(one.lines for one in reading.refused)
    assert reading.lines == reading.accepted + refused == len(case.lines)


def test_elements_and_rows_have_gaps_as_lines_do(tmp_path):
    lines = [ASK, CALL, '{"foreign":1}', SAY]
    (tmp_path / "a.json").write_text("[" + ",\n".join(lines) + "]")
    rows = [{name: one.get(name) for name in ("role", "content", "foreign")} for one in map(json.loads, lines)]
    pq.write_table(pa.Table.from_pylist([rows[0], {"role": "assistant", "content": "a"}, *rows[2:]]), tmp_path / "b.parquet")
    for name in ("a.json", "b.parquet"):
        reading = read_files([str(tmp_path / name)])
        [conversation] = reading.conversations
        assert [message.role for message in conversation.messages] == ["user", "assistant"]
        assert reading.reasons() == {"no known format": 1, AFTER_A_GAP: 1}


def test_a_session_of_an_agent_ends_at_a_gap(tmp_path):
    line = {"sessionId": "s", "uuid": "1", "parentUuid": None}
    asked = line | {"type": "user", "message": {"role": "user", "content": "q"}}
    told = line | {"type": "assistant", "message": {"role": "assistant", "content": "a", "id": "m"}, "uuid": "2", "parentUuid": "1"}
    more = [asked | {"uuid": "3", "parentUuid": "2"}, told | {"uuid": "4", "parentUuid": "3"}]
    item = {"timestamp": "t", "type": "response_item"}
    codex = [item | {"payload": {"type": "message", "role": role, "content": role}} for role in ("user", "assistant")]
    for records in ([asked, told, *more], [*codex, *codex]):
        text = [json.dumps(record) for record in records]
        (tmp_path / "a.jsonl").write_text("\n".join([*text[:2], text[2][:-9], text[3], ""]))
        reading = read_files([str(tmp_path / "a.jsonl")])
        [conversation] = reading.conversations
        assert (len(conversation.messages), reading.reasons()) == (2, {"not JSON": 1, AFTER_A_GAP: 1})


def test_items_of_the_responses_api_are_a_transcript(tmp_path):
    items = [
        {"role": "user", "content": "weather in Oslo?"},
        {"type": "reasoning", "id": "r", "summary": [{"type": "summary_text", "text": "Look it up."}]},
        {"type": "function_call", "call_id": "c1", "name": "weather", "arguments": '{"city": "Oslo"}'},
        {"type": "function_call_output", "call_id": "c1", "output": "3"},
        {"type": "custom_tool_call", "call_id": "c2", "name": "note", "input": "cold"},
        {"type": "custom_tool_call_output", "call_id": "c2", "output": "kept"},
        {"type": "mcp_call", "id": "c3", "name": "wind", "arguments": '{"at": 1}', "output": "none", "server_label": "sky"},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "3 degrees", "annotations": []}]},
    ]
    (tmp_path / "a.json").write_text(json.dumps(items))
    (tmp_path / "b.jsonl").write_text("".join(json.dumps(item) + "\n" for item in items))
    for name in ("a.json", "b.jsonl"):
        reading = read_files([str(tmp_path / name)])
        [conversation] = reading.conversations
        assert reading.reasons() == {}
        assert [message.role for message in conversation.messages][:5] == ["user", "assistant", "tool", "assistant", "tool"]
        assert conversation.messages[1].content == "<think>\nLook it up.\n</think>\n"
        calls = [call for message in conversation.messages for call in message.tool_calls]
        assert [call.name for call in calls] == ["weather", "note", "wind"]
        assert [message.content for message in conversation.messages if message.role == "tool"] == ["3", "kept", "none"]
        assert conversation.messages[-1].content == "3 degrees"


def test_an_item_that_is_elsewhere_refuses_the_transcript(tmp_path):
    items = [{"role": "user", "content": "q"}, {"type": "item_reference", "id": "x"}, {"role": "assistant", "content": "a"}]
    (tmp_path / "a.json").write_text(json.dumps(items))
    assert read_files([str(tmp_path)]).reasons() == {"an item that refers to another one, which is not here": 3}


def test_a_folder_for_each_task_is_a_session_each(tmp_path):
    for task in ("1", "2"):
        (tmp_path / task).mkdir()
        said = [{"role": "user", "content": f"task {task}"}, {"role": "assistant", "content": "done"}]
        for name in ("api_conversation_history", "log"):
            (tmp_path / task / f"{name}.json").write_text(json.dumps(said))
    sessions = [one.session for one in read_files([str(tmp_path)]).conversations]
    assert sessions == ["1", "1/log", "2", "2/log"]


@pytest.mark.parametrize(
    ("file", "session"),
    [
        ("/logs/20251122_101112_ab.jsonl.gz", "20251122_101112_ab"),
        ("/logs/rollout-2025-11-22T10-11.jsonl", "rollout-2025-11-22T10-11"),
        ("/logs/0198A7C1-3b4e-7d21-9f00-aabbccddeeff.jsonl", "0198A7C1-3b4e-7d21-9f00-aabbccddeeff"),
        ("/logs/agent-a1b2c3d4.jsonl", "agent-a1b2c3d4"),
        ("/logs/01JDA5X7K3M9QZ2W8RTV4N6YBC.jsonl", "01JDA5X7K3M9QZ2W8RTV4N6YBC"),
        ("/logs/20251122.jsonl", "logs/20251122"),
        ("/logs/conversation2026.jsonl", "logs/conversation2026"),
        ("/tasks/17/api_conversation_history.json", "17"),
        ("/tasks/17/log.jsonl", "17/log"),
        ("/tasks/~17/log.jsonl", "17/log"),
        ("/log.jsonl", "log"),
        ("https://host/tasks/17/log.jsonl", "17/log"),
        ("hf:org/name:train", "name:train"),
        ("-", "-"),
    ],
)
def test_a_session_is_named_by_its_file(file, session):
    assert session_of(file) == session


def test_a_file_is_one_session_however_it_is_named(tmp_path, monkeypatch):
    (tmp_path / "17").mkdir()
    monkeypatch.chdir(tmp_path / "17")
    assert {session_of(name) for name in ("log.jsonl", "./log.jsonl", "../17/log.jsonl", str(tmp_path / "17/log.jsonl"))} == {
        "17/log"
    }
