"""Whatever a record holds, it is read or refused; nothing else happens, and nothing is lost of what is read."""

import copy
import json

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clawpipe.data.importers.read.read import Reader
from clawpipe.data.importers.read.reading import Refusal

SAID = [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]
CALLS = [
    {"role": "system", "content": "s"},
    {"role": "user", "content": [{"type": "text", "text": "q"}, {"type": "image_url", "image_url": {"url": "x.png"}}]},
    {
        "role": "assistant",
        "content": None,
        "reasoning": "r",
        "tool_calls": [{"id": "c", "function": {"name": "f", "arguments": '{"a": 1}'}}],
    },
    {"role": "tool", "tool_call_id": "c", "content": "1"},
    {"role": "assistant", "content": "a", "weight": 1},
]
RECORDS = {
    "openclaw-turn": {
        "session_id": "s",
        "turn": 2,
        "messages": [*SAID, SAID[0]],
        "response_text": "a",
        "tool_calls": [],
        "next_state": {"role": "user", "content": "thanks"},
    },
    "openclaw-judge": {
        "session_id": "s",
        "turn": 2,
        "score": 1,
        "votes": [1, "fail"],
        "hint": "a hint that is long",
        "accepted": True,
    },
    "clawpipe": {
        "trajectory_id": "t",
        "group_id": "g",
        "messages": SAID,
        "tokens": "recorded",
        "token_ids": [1, 2],
        "loss_mask": [False, True],
        "logprobs": [0.0, -1.0],
        "turns": [{"start": 1, "end": 2, "kind": "main", "finish_reason": "stop"}],
        "extra": '{"a": 1}',
    },
    "atropos": {
        "tokens": [[1, 2]],
        "masks": [[-100, 2]],
        "scores": [1.0],
        "messages": [SAID],
        "inference_logprobs": [[1.0, -0.5]],
        "advantages": [[0, 1]],
        "overrides": [{"set_advantage_to_zero": True}],
        "distill_token_ids": [[[1], [2]]],
        "distill_logprobs": [[[-1], [-2]]],
        "generation_params": {"temperature": 1},
    },
    "hermes": {
        "prompt_index": 0,
        "conversations": [
            {"from": "system", "value": '<tools>\n[{"name": "f"}]\n</tools>'},
            {"from": "human", "value": "q"},
            {"from": "gpt", "value": '<think>\n</think>\n<tool_call>\n{"name": "f", "arguments": {}}\n</tool_call>'},
            {
                "from": "tool",
                "value": '<tool_response>\n{"name": "f", "content": {"error": 1}}\n</tool_response>',
            },
        ],
        "metadata": {"model": "m"},
        "completed": True,
        "partial": False,
        "tool_stats": {"f": {"count": 1, "success": 0, "failure": 1}},
        "tool_error_counts": {"f": 1},
    },
    "hermes-session": {
        "id": "s",
        "source": "cli",
        "started_at": 1.5,
        "messages": CALLS,
        "system_prompt": "p",
        "tool_call_count": 1,
        "user_id": "u",
    },
    "chat": {
        "request": {
            "messages": CALLS,
            "tools": [{"type": "function"}],
            "headers": {"X-Session-Id": "s"},
            "metadata": {"user_id": "u"},
        },
        "response": {
            "prompt_token_ids": [1],
            "choices": [
                {"message": SAID[1], "finish_reason": "stop", "token_ids": [2], "logprobs": {"content": [{"logprob": -1}]}}
            ],
        },
    },
    "hf-preference": {"prompt": "q", "chosen": [SAID[1]], "rejected": "b", "score_chosen": 1, "score_rejected": 0},
    "hf-completion": {"prompt": SAID, "completion": "a", "label": True},
    "alpaca": {"instruction": "q", "input": "i", "output": "a", "history": [["b", "c"]], "system": "s", "label": 1},
    "tau-bench": {
        "task_id": 1,
        "reward": 1,
        "traj": CALLS,
        "info": {"task": {"instruction": "q"}, "reward_info": {"r": 1}},
    },
    "swe-agent": {
        "history": [{"role": "user", "content": "q", "is_demo": True}, *CALLS],
        "trajectory": [],
        "info": {"exit_status": "submitted"},
    },
    "responses": {
        "request": {
            "input": [
                SAID[0],
                {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
                {"type": "function_call_output", "call_id": "c", "output": "1"},
            ],
            "instructions": "s",
        },
        "response": {
            "output": [
                {"type": "reasoning", "summary": [{"type": "summary_text", "text": "r"}]},
                {"type": "web_search_call", "id": "w", "action": {"query": "x"}},
                {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "a"}]},
            ],
        },
    },
    "telemetry": {
        "resourceSpans": [
            {
                "scopeSpans": [
                    {
                        "spans": [
                            {
                                "name": "chat",
                                "attributes": [
                                    {
                                        "key": "gen_ai.input.messages",
                                        "value": {"stringValue": '[{"role": "user", "content": "q"}]'},
                                    },
                                    {"key": "gen_ai.completion.0.content", "value": {"stringValue": "a"}},
                                    {"key": "more", "value": {"arrayValue": {"values": [{"intValue": "1"}]}}},
                                ],
                            }
                        ]
                    }
                ]
            }
        ]
    },
    "claude-code": {
        "type": "user",
        "sessionId": "s",
        "uuid": "u",
        "parentUuid": None,
        "message": {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": "1"}]},
    },
    "codex": {"timestamp": "t", "type": "response_item", "payload": {"type": "message", "role": "assistant", "content": "a"}},
    "hermes-transcript": {"role": "user", "content": "q", "timestamp": 1},
    "hf-prompt": {"prompt": [SAID[0]], "answer": 3},
}
TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=8)
LEAVES = st.none() | st.booleans() | st.integers(-(2**40), 2**40) | st.floats(allow_nan=False, allow_infinity=False) | TEXT
VALUES = st.recursive(LEAVES, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(TEXT, inner, max_size=2), max_leaves=4)


AROUND = {  # other lines of the files over which records are spread
    "claude-code": [
        {"type": "user", "sessionId": "s", "message": SAID[0]},
        {"type": "assistant", "sessionId": "s", "message": SAID[1]},
    ],
    "codex": [{"timestamp": "t", "type": "response_item", "payload": {"type": "message"} | SAID[0]}],
    "hermes-transcript": [SAID[1]],
}


def read(record, tmp_path, around=()):
    file = tmp_path / "one.jsonl"
    file.write_bytes(b"".join(orjson.dumps(line) + b"\n" for line in (record, *around)))
    reader = Reader()
    found = [*reader.file(str(file)), *reader.sessions()]
    return reader.reading, found


@pytest.mark.parametrize("name", RECORDS)
def test_each_record_is_known_by_its_content(tmp_path, name):
    reading, found = read(RECORDS[name], tmp_path, AROUND.get(name, []))
    lines = 1 + len(AROUND.get(name, []))
    assert (dict(reading.formats), reading.reasons(), reading.accepted) == ({name: lines}, {}, lines)
    assert found or name == "openclaw-judge"
    assert all(record.origin.format == name and record.origin.line == 1 for record in found)
    assert reading.unmatched == (name == "openclaw-judge")


def places(value, path=()):
    yield path
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, part in inner:
        yield from places(part, (*path, key))


def changed(record, path, value):
    record = copy.deepcopy(record)
    part = record
    for key in path[:-1]:
        part = part[key]
    part[path[-1]] = value
    return record


@settings(deadline=None, max_examples=400)
@given(st.data())
def test_a_record_with_anything_in_any_place_is_read_or_refused(tmp_path_factory, data):
    name = data.draw(st.sampled_from(sorted(RECORDS)))
    record, around = RECORDS[name], AROUND.get(name, [])
    path = data.draw(st.sampled_from([path for path in places(record) if path]))
    reading, found = read(changed(record, path, data.draw(VALUES)), tmp_path_factory.getbasetemp(), around)
    assert reading.lines == 1 + len(around) == reading.accepted + sum(reading.reasons().values())
    assert len([record for record in found if isinstance(record, Refusal)]) == reading.lines - reading.accepted
    for record in found:
        if not isinstance(record, Refusal):
            json.dumps(record.extra, allow_nan=False)
