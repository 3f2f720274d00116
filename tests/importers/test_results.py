"""Results of evaluations: Inspect, Harbor, BFCL, ToolBench, verifiers."""

import io
import json
import zipfile

import pytest

from tests.importers.logs import only, read, short
from tests.importers.reading import read_files

SAMPLE = {
    "id": 1,
    "epoch": 2,
    "input": "guess",
    "target": "7",
    "messages": [
        {"id": "m0", "role": "user", "content": "guess", "source": "input"},
        {"role": "assistant", "content": "an example", "source": "input"},
        {"role": "user", "content": "attachment://f1", "source": "input"},
        {
            "role": "assistant",
            "content": [{"type": "reasoning", "reasoning": "hm"}, {"type": "text", "text": "I look."}],
            "tool_calls": [{"id": "c1", "function": "bash", "arguments": {"cmd": "ls"}, "type": "function"}],
            "source": "generate",
            "model": "m",
        },
        {
            "role": "tool",
            "content": "",
            "tool_call_id": "c1",
            "function": "bash",
            "error": {"type": "timeout", "message": "too slow"},
        },
        {"role": "assistant", "content": "7", "source": "generate", "model": "m"},
    ],
    "output": {"model": "m", "choices": [{"message": {"role": "assistant", "content": "7"}, "stop_reason": "stop"}]},
    "scores": {"includes": {"value": "C", "answer": "7"}},
    "attachments": {"f1": "the long text"},
    "events": [{"event": "model", "tools": [{"name": "bash", "parameters": {}}]}],
}
HEADER = {"version": 2, "status": "success", "eval": {"run_id": "r", "task": "t", "model": "m"}, "plan": {}}
INSPECTED = [
    ("user", "guess"),
    ("assistant", "an example"),
    ("user", "the long text"),
    ("assistant", '<think>\nhm\n</think>\nI look. bash({"cmd": "ls"})'),
    ("tool", "too slow"),
    ("assistant", "7"),
]


def zipped(*samples):
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("_journal/start.json", json.dumps(HEADER))
        for place, sample in enumerate(samples):
            archive.writestr(f"samples/{place}_epoch_1.json", json.dumps(sample, indent=2))
        archive.writestr("header.json", json.dumps(HEADER))
    return packed.getvalue()


def test_inspect_logs_as_json_and_as_archives_are_the_same(tmp_path):
    (tmp_path / "a.json").write_text(json.dumps(HEADER | {"samples": [SAMPLE]}, indent=2))
    (tmp_path / "b.eval").write_bytes(zipped(SAMPLE))
    reading = read_files([str(tmp_path)])
    assert [short(one) for one in reading.conversations] == [INSPECTED] * 2
    for one in reading.conversations:
        assert (one.session, one.model, one.kinds) == ("r/1/2", "m", ("side", "main", "main"))
        assert ([judged.value for judged in one.judgements], one.status, one.tool_errors) == ([1.0], "completed", 1)
        assert json.loads(one.tools) == [{"name": "bash", "parameters": {}}]


@pytest.mark.parametrize(
    ("fields", "score", "status"),
    [
        ({"scores": {"s": {"value": "I"}}}, 0.0, "completed"),
        ({"scores": {"s": {"value": "P"}}}, 0.5, "completed"),
        ({"scores": {"s": {"value": 0.25}}}, 0.25, "completed"),
        ({"scores": {"s": {"value": True}}}, 1.0, "completed"),
        ({"scores": {"s": {"value": {"a": 1}}}}, None, "completed"),
        ({"scores": None}, None, "completed"),
        ({"error": {"message": "boom"}}, 1.0, "aborted"),
        ({"limit": {"type": "message", "limit": 30}}, 1.0, "partial"),
        ({"output": {"choices": [{"stop_reason": "max_tokens"}]}}, 1.0, "truncated"),
    ],
)
def test_inspect_says_scores_and_ends(tmp_path, fields, score, status):
    conversation = only(read(tmp_path, SAMPLE | fields))
    assert [one.value for one in conversation.judgements] == ([] if score is None else [score])
    assert conversation.status == status


def test_archives_are_checked_like_any_line(tmp_path):
    (tmp_path / "a.eval").write_bytes(zipped(SAMPLE, {"id": 2}))
    (tmp_path / "b.eval").write_bytes(zipped(SAMPLE)[:-80])
    (tmp_path / "c.json").write_text(json.dumps(HEADER))
    reading = read_files([str(tmp_path)])
    assert len(reading.conversations) == 1
    assert reading.reasons() == {
        "no known format": 1,
        "file cannot be read on: a zip archive: unpack it, and name what was in it": 1,
        "a log of Inspect without an answer in its samples": 1,
    }


@pytest.mark.parametrize(
    ("header", "reasons"),
    [
        (json.dumps(HEADER | {"results": {"stderr": float("nan")}}), {}),
        ("[1]", {}),
        (json.dumps(HEADER)[:20], {"file cannot be read on: a log of Inspect whose header.json is no JSON": 1}),
    ],
    ids=["nan", "a list", "cut"],
)
def test_a_strange_header_of_an_archive_costs_no_other_file(tmp_path, header, reasons):
    """Inspect writes NaN where a figure has no value."""
    with zipfile.ZipFile(tmp_path / "a.eval", "w") as archive:
        archive.writestr("samples/0_epoch_1.json", json.dumps(SAMPLE))
        archive.writestr("header.json", header)
    (tmp_path / "b.eval").write_bytes(zipped(SAMPLE))
    reading = read_files([str(tmp_path)])
    assert (len(reading.conversations), reading.reasons()) == (1 if reasons else 2, reasons)


ATIF = {
    "schema_version": "ATIF-v1.6",
    "session_id": "s",
    "agent": {"name": "terminus", "version": "2", "model_name": "m", "tool_definitions": [{"name": "bash"}]},
    "steps": [
        {"step_id": 1, "source": "system", "message": "be kind"},
        {"step_id": 2, "source": "user", "message": "list"},
        {"step_id": 3, "source": "agent", "message": "earlier", "is_copied_context": True},
        {"step_id": 4, "source": "user", "message": "again"},
        {
            "step_id": 5,
            "source": "agent",
            "message": "I look.",
            "reasoning_content": "hm",
            "tool_calls": [{"tool_call_id": "c1", "function_name": "bash", "arguments": {"command": "ls"}}],
            "observation": {"results": [{"source_call_id": "c1", "content": "a.txt"}]},
            "metrics": {"completion_tokens": 3},
        },
        {"step_id": 6, "source": "agent", "message": "ls", "observation": {"results": [{"content": "a.txt"}]}},
        {"step_id": 7, "source": "agent", "message": "Done."},
    ],
}


def test_atif_steps_are_turns(tmp_path):
    conversation = only(read(tmp_path, ATIF))
    assert short(conversation) == [
        ("system", "be kind"),
        ("user", "list"),
        ("assistant", "earlier"),
        ("user", "again"),
        ("assistant", '<think>\nhm\n</think>\nI look. bash({"command": "ls"})'),
        ("tool", "a.txt"),
        ("assistant", "ls"),
        ("user", "a.txt"),
        ("assistant", "Done."),
    ]
    assert (conversation.session, conversation.model, conversation.kinds) == ("s", "m", ("side", "main", "main", "main"))
    assert conversation.extra["export"]["metrics"] == [{"step_id": 5, "completion_tokens": 3}]


def test_an_item_of_bfcl_is_a_task(tmp_path):
    tools = [{"name": "add", "parameters": {"type": "dict"}}]
    record = {"id": "simple_0", "question": [[{"role": "user", "content": "2+2?"}]], "function": tools}
    [prompt] = read(tmp_path, record).prompts
    assert ([one.content for one in prompt.messages], json.loads(prompt.tools)) == (["2+2?"], tools)
    many = {"id": "multi_turn_0", "question": [[{"role": "user", "content": "a"}]] * 2, "involved_classes": ["FS"]}
    assert read(tmp_path, many).reasons() == {"an item of BFCL with several turns, which needs its environment": 1}


def test_a_result_of_bfcl_needs_its_log(tmp_path):
    call = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a": 2}'}}
    steps = {
        "begin_of_turn_query": [{"role": "user", "content": "2+2?"}],
        "step_0": [{"role": "assistant", "content": "", "tool_calls": [call]}, {"role": "handler_log", "content": "ok"}],
        "step_1": [{"role": "tool", "content": "4", "tool_call_id": "c1"}, {"role": "assistant", "content": "4"}],
    }
    conversation = only(read(tmp_path, {"id": "multi_0", "result": [[]], "inference_log": [{"role": "state_info"}, steps]}))
    assert short(conversation) == [("user", "2+2?"), ("assistant", 'add({"a": 2})'), ("tool", "4"), ("assistant", "4")]
    bare = {"id": "simple_0", "result": "[add(a=2)]", "input_token_count": 3, "latency": 1.0}
    assert "a result of BFCL without its question" in next(iter(read(tmp_path, bare).reasons()))


def test_toolbench_keeps_the_way_to_its_answer(tmp_path):
    way = [
        {"role": "system", "content": "be kind"},
        {"role": "user", "content": "2+2?"},
        {"role": "assistant", "content": "", "function_call": {"name": "add", "arguments": '{"a": 2}'}},
        {"role": "function", "name": "add", "content": "4"},
        {"role": "assistant", "content": "4"},
    ]
    answer = {"query": "2+2?", "valid_data": True, "train_messages": [way[:3], way], "function": [{"name": "add"}]}
    conversation = only(read(tmp_path, {"win": True, "answer_generation": answer, "tree": {"big": 1}}))
    assert [role for role, _ in short(conversation)] == ["system", "user", "assistant", "tool", "assistant"]
    assert [(one.value, one.success) for one in conversation.judgements] == [(1.0, True)]


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        ({"is_completed": True, "is_truncated": False}, "completed"),
        ({"is_completed": True, "is_truncated": True}, "truncated"),
        ({"is_truncated": False, "error": {"error": "ToolError"}}, "aborted"),
        ({}, None),
    ],
)
def test_verifiers_say_how_a_rollout_ended(tmp_path, fields, status):
    row = {"example_id": 3, "prompt": [{"role": "user", "content": "2+2?"}], "completion": [{"role": "assistant", "content": "4"}]}
    conversation = only(read(tmp_path, row | {"task": "default", "reward": 0.5, "answer": "4"} | fields))
    assert ([one.value for one in conversation.judgements], conversation.status) == ([0.5], status)


def test_rows_of_xlam_answer_with_calls(tmp_path):
    tools = [{"name": "add", "description": "Adds.", "parameters": {"a": {"type": "int"}}}]
    answers = [{"name": "add", "arguments": {"a": 2}}, {"name": "add", "arguments": {"a": 3}}]
    record = {"id": 1, "query": "2 and 3?", "tools": json.dumps(tools), "answers": json.dumps(answers)}
    conversation = only(read(tmp_path, record))
    assert short(conversation) == [("user", "2 and 3?"), ("assistant", 'add({"a": 2}) add({"a": 3})')]
    assert json.loads(conversation.tools) == tools


@pytest.mark.parametrize(
    ("ended", "status"), [("Submitted", "completed"), ("LimitsExceeded", "partial"), ("RuntimeError", "aborted")]
)
def test_mini_swe_agent_ends_with_a_message_that_nobody_said(tmp_path, ended, status):
    said = [{"role": "user", "content": "fix"}, {"role": "assistant", "content": "Done."}, {"role": "exit", "content": "diff"}]
    info = {"exit_status": ended, "config": {"model": {"model_name": "m"}}}
    record = {"trajectory_format": "mini-swe-agent-1.1", "info": info, "messages": said, "instance_id": "django-1"}
    conversation = only(read(tmp_path, record, name="django-1.traj.json"))
    assert short(conversation) == [("user", "fix"), ("assistant", "Done.")]
    assert (conversation.session, conversation.model, conversation.status) == ("django-1", "m", status)
