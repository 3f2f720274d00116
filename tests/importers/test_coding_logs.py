"""Sessions of programs that write code: Gemini CLI, Copilot, OpenHands, Aider."""

import json

import pytest

from tests.importers.logs import only, read, short
from tests.importers.reading import read_files

GEMINI = {"sessionId": "s-1", "projectHash": "abc", "startTime": "2026", "lastUpdated": "2026"}
ASKED = {"id": "u1", "timestamp": "1", "type": "user", "content": [{"text": "list files"}]}
CALLED = {
    "id": "g1",
    "timestamp": "2",
    "type": "gemini",
    "content": "",
    "model": "gemini-2.5-pro",
    "thoughts": [{"subject": "Look", "description": "I look."}],
    "toolCalls": [
        {
            "id": "t1",
            "name": "run_shell_command",
            "args": {"command": "ls"},
            "result": [{"functionResponse": {"id": "t1", "name": "run_shell_command", "response": {"output": "a.txt"}}}],
            "status": "success",
        },
        {"id": "t2", "name": "read_file", "args": {"path": "b"}, "status": "error", "resultDisplay": "no such file"},
    ],
}
REPEATED = {"id": "u2", "timestamp": "3", "type": "user", "content": [{"functionResponse": {"name": "run_shell_command"}}]}
NOTED = {"id": "i1", "timestamp": "3", "type": "info", "content": "update available"}
ANSWERED = {"id": "g2", "timestamp": "4", "type": "gemini", "content": "There is a.txt.", "model": "gemini-2.5-pro"}
GEMINI_SAID = [
    ("user", "list files"),
    ("assistant", '<think>\nLook\nI look.\n</think> run_shell_command({"command": "ls"}) read_file({"path": "b"})'),
    ("tool", "a.txt"),
    ("tool", "no such file"),
    ("assistant", "There is a.txt."),
]


def test_gemini_cli_as_json(tmp_path):
    (tmp_path / "session-1.json").write_text(json.dumps(GEMINI | {"messages": [ASKED, CALLED, NOTED, ANSWERED]}, indent=2))
    conversation = only(read(tmp_path))
    assert short(conversation) == GEMINI_SAID
    assert (conversation.session, conversation.model, conversation.tool_errors) == ("s-1", "gemini-2.5-pro", 1)
    assert conversation.kinds == ("main", "main")


def test_gemini_cli_as_lines_that_change_one_another(tmp_path):
    early = {name: value for name, value in CALLED.items() if name != "toolCalls"}
    left = {"id": "u9", "timestamp": "5", "type": "user", "content": "no"}
    lines = [GEMINI, ASKED, {"$set": {"lastUpdated": "2"}}, early, CALLED, REPEATED, ANSWERED, left, {"$rewindTo": "u9"}]
    conversation = only(read(tmp_path, *lines))
    assert short(conversation) == GEMINI_SAID
    assert conversation.extra["export"]["rewound"] == [left]


def test_a_session_of_gemini_cli_that_is_resumed_is_one(tmp_path):
    again = {"$set": {"messages": [ASKED, CALLED, NOTED, ANSWERED]}}
    more = ASKED | {"id": "u3", "content": [{"text": "And now?"}]}
    conversation = only(read(tmp_path, GEMINI, ASKED, CALLED, ANSWERED, GEMINI | {"startTime": "2027"}, again, more))
    assert short(conversation)[: len(GEMINI_SAID)] == GEMINI_SAID
    assert short(conversation)[len(GEMINI_SAID) :] == [("user", "And now?")]


def test_an_error_after_gemini_cuts_its_answer(tmp_path):
    broken = {"id": "e", "timestamp": "5", "type": "error", "content": "[API Error]"}
    assert only(read(tmp_path, GEMINI, ASKED, ANSWERED, broken)).status == "aborted"


def vscode(**more):
    request = {"requestId": "r", "message": {"text": "fix it", "parts": []}, "isCanceled": False, "modelId": "copilot/gpt-5"}
    return {"responderUsername": "GitHub Copilot", "initialLocation": "panel", "requests": [request | more], "sessionId": "s-2"}


def test_copilot_reads_what_it_displayed(tmp_path):
    parts = [{"kind": "thinking", "value": "hm"}, {"kind": "markdownContent", "content": {"value": "Do "}}, {"value": "this."}]
    conversation = only(read(tmp_path, vscode(response=parts, vote=1)))
    assert short(conversation) == [("user", "fix it"), ("assistant", "<think>\nhm\n</think>\nDo this.")]
    assert (conversation.session, conversation.model) == ("s-2", "copilot/gpt-5")
    assert [(one.value, one.turn) for one in conversation.judgements] == [(1.0, 0)]


@pytest.mark.parametrize(
    "reference",
    [
        {"inlineReference": {"$mid": 1, "path": "/w/a b/lint.sh", "scheme": "file"}},
        {"inlineReference": {"uri": {"path": "/w/lint.sh"}, "range": {"startLineNumber": 4}}},
        {"inlineReference": {"uri": "file:///w/lint.sh"}},
        {"inlineReference": {"name": "lint.sh", "location": {"uri": {"path": "/w/other.py"}}}},
        {"name": "lint.sh", "inlineReference": {"path": "/w/other.py"}},
    ],
)
def test_copilot_leaves_no_hole_for_a_reference(tmp_path, reference):
    parts = [{"value": "Here is the updated "}, {"kind": "inlineReference"} | reference, {"value": " script."}]
    conversation = only(read(tmp_path, vscode(response=parts)))
    assert short(conversation)[1:] == [("assistant", "Here is the updated lint.sh script.")]


@pytest.mark.parametrize(
    ("shown", "call", "kind"),
    [
        ({"toolSpecificData": {"kind": "terminal", "command": "npm test"}}, '{"command": "npm test"}', "main"),
        ({"toolSpecificData": {"kind": "terminal", "commandLine": {"original": "ls"}}}, '{"command": "ls"}', "main"),
        ({"toolSpecificData": {"kind": "input", "rawInput": {"filter": "unit"}}}, '{"filter": "unit"}', "main"),
        ({"resultDetails": {"input": '{"q": 1}', "output": "7"}}, '{"q": 1}', "main"),
        ({"resultDetails": [{"path": "/w/a"}]}, "{}", "side"),
    ],
)
def test_copilot_learns_no_call_without_arguments(tmp_path, shown, call, kind):
    part = {"kind": "toolInvocationSerialized", "toolId": "run", "toolCallId": "c1"} | shown
    conversation = only(read(tmp_path, vscode(response=[part, {"value": "Done."}])))
    assert short(conversation)[1] == ("assistant", f"run({call})")
    assert conversation.kinds == (kind, "main")


def test_copilot_reads_the_rounds_where_there_are_any(tmp_path):
    called = {"response": "I look.", "toolCalls": [{"id": "c1", "name": "read", "arguments": '{"path": "a"}'}]}
    results = {"c1": {"content": [{"value": "x = 1"}]}}
    metadata = {"toolCallRounds": [called, {"response": "Done.", "toolCalls": []}], "toolCallResults": results}
    conversation = only(read(tmp_path, vscode(response=[{"value": "I look.Done."}], result={"metadata": metadata})))
    assert short(conversation) == [
        ("user", "fix it"),
        ("assistant", 'I look. read({"path": "a"})'),
        ("tool", "x = 1"),
        ("assistant", "Done."),
    ]


@pytest.mark.parametrize("more", [{"isCanceled": True}, {"result": {"errorDetails": {"message": "rate limited"}}}])
def test_a_cancelled_request_is_cut(tmp_path, more):
    assert only(read(tmp_path, vscode(response=[{"value": "Do"}], **more))).status == "aborted"


def test_copilot_cli_reads_events(tmp_path):
    events = [
        ("session.start", {"sessionId": "s-3", "selectedModel": "gpt-5"}),
        ("user.message", {"content": "list"}),
        ("assistant.turn_start", {"turnId": "0"}),
        ("hook.start", {"name": "of another version"}),
        (
            "assistant.message",
            {"content": "", "toolRequests": [{"toolCallId": "c1", "name": "bash", "arguments": {"command": "ls"}}]},
        ),
        ("tool.execution_start", {"toolCallId": "c1"}),
        ("tool.execution_complete", {"toolCallId": "c1", "success": False, "error": {"message": "denied"}}),
        ("assistant.message", {"content": "I may not.", "toolRequests": []}),
    ]
    conversation = only(
        read(tmp_path, *({"type": kind, "data": data, "timestamp": "t", "id": "i", "parentId": None} for kind, data in events))
    )
    assert short(conversation) == [
        ("user", "list"),
        ("assistant", 'bash({"command": "ls"})'),
        ("tool", "denied"),
        ("assistant", "I may not."),
    ]
    assert (conversation.session, conversation.model, conversation.tool_errors) == ("s-3", "gpt-5", 1)


def event(kind, source, **more):
    return {"id": kind, "timestamp": "2026-02-05", "source": source, "kind": kind} | more


def called(call_id, name, arguments):
    call = {"id": call_id, "name": name, "arguments": arguments, "origin": "completion"}
    more = {"thought": [], "action": {"kind": "TerminalAction"}, "tool_name": name, "tool_call_id": call_id}
    return event("ActionEvent", "agent", tool_call=call, llm_response_id="r", **more)


def observed(call_id, text, failed):
    said = {"content": [{"type": "text", "text": text}], "is_error": failed, "kind": "TerminalObservation"}
    return event("ObservationEvent", "environment", tool_name="terminal", tool_call_id=call_id, observation=said)


def text(role, said, source):
    return event("MessageEvent", source, llm_message={"role": role, "content": [{"type": "text", "text": said}]})


OPENHANDS = [
    event("SystemPromptEvent", "agent", system_prompt={"type": "text", "text": "be kind"}, tools=[{"name": "terminal"}]),
    text("user", "pwd", "user"),
    called("c1", "terminal", '{"command": "pwd"}'),
    called("c2", "terminal", '{"command": "false"}'),
    observed("c1", "/work", False),
    observed("c2", "no", True),
    event("ConversationStateUpdateEvent", "environment", key="stats"),
    event("CondensationRequest", "agent"),
    text("assistant", "You are in /work.", "agent"),
]
OPENHANDS_SAID = [
    ("system", "be kind"),
    ("user", "pwd"),
    ("assistant", 'terminal({"command": "pwd"}) terminal({"command": "false"})'),
    ("tool", "/work"),
    ("tool", "no"),
    ("assistant", "You are in /work."),
]


def test_openhands_reads_a_folder_of_events_as_one_file(tmp_path):
    folder = tmp_path / "conversations" / "abc" / "events"
    folder.mkdir(parents=True)
    for number, one in enumerate(OPENHANDS):
        (folder / f"event-{number:05}-1a2b.json").write_text(json.dumps(one))
    (folder.parent / "base_state.json").write_text(json.dumps({"id": "abc"}))
    reading = read(tmp_path)
    [conversation] = reading.conversations
    assert short(conversation) == OPENHANDS_SAID
    assert (conversation.session, conversation.tool_calls, conversation.tool_errors) == ("abc", 2, 1)
    assert json.loads(conversation.tools) == [{"name": "terminal"}]
    assert reading.reasons() == {"no known format": 1}  # the state


def test_openhands_reads_events_of_versions_before(tmp_path):
    metadata = {
        "function_name": "execute_bash",
        "tool_call_id": "c1",
        "model_response": {
            "choices": [
                {"message": {"tool_calls": [{"id": "c1", "function": {"name": "execute_bash", "arguments": '{"command": "ls"}'}}]}}
            ]
        },
    }
    events = [
        {"id": 0, "timestamp": "t", "source": "user", "message": "list", "action": "message", "args": {"content": "list"}},
        {"id": 1, "timestamp": "t", "source": "environment", "observation": "agent_state_changed", "content": ""},
        {
            "id": 2,
            "timestamp": "t",
            "source": "agent",
            "action": "run",
            "args": {"command": "ls", "thought": "I look."},
            "tool_call_metadata": metadata,
        },
        {"id": 3, "timestamp": "t", "source": "agent", "observation": "run", "content": "a.txt", "tool_call_metadata": metadata},
        {
            "id": 4,
            "timestamp": "t",
            "source": "agent",
            "action": "finish",
            "args": {"final_thought": "done", "task_completed": "true"},
        },
    ]
    said = [
        ("user", "list"),
        ("assistant", 'I look. execute_bash({"command": "ls"})'),
        ("tool", "a.txt"),
        ("assistant", 'finish({"final_thought": "done"})'),
    ]
    assert short(only(read(tmp_path, *events))) == said
    result = {"instance_id": "django-1", "history": events, "test_result": {"report": {"resolved": True}}, "metadata": {}}
    conversation = only(read(tmp_path, result))
    assert (short(conversation), conversation.session) == (said, "django-1")
    assert [(one.value, one.success) for one in conversation.judgements] == [(1.0, True)]


AIDER = """
# aider chat started at 2026-09-27 17:51:48

> Can't initialize prompt toolkit

# aider chat started at 2026-09-27 18:02:43

> Aider v0.86.2
> Main model: bedrock/haiku with diff edit format

#### /add a.py
> Added a.py to the chat.

#### Show the function
#### please

Here:

```py
x = 1
```

> Tokens: 19k sent, 705 received.

#### /ask and more
Half an ans
> ^C KeyboardInterrupt
"""


def test_aider_keeps_what_was_said_and_no_commands(tmp_path):
    (tmp_path / "history.md").write_text(AIDER)
    reading = read_files([str(tmp_path / "history.md")])
    [conversation] = reading.conversations
    assert short(conversation) == [
        ("user", "Show the function\nplease"),
        ("assistant", "Here:\n\n```py\nx = 1\n```"),
        ("user", "and more"),
        ("assistant", "Half an ans"),
    ]
    assert (conversation.session, conversation.model, conversation.status) == (
        "aider 2026-09-27 18:02:43",
        "bedrock/haiku",
        "aborted",
    )
    assert reading.reasons() == {"no assistant message": 1}


AIDER_GOES_ON = """
# aider chat started at 2026-09-27 18:02:43

#### /code make it blue

#### make it blue

I change it.

> Tokens: 13k sent, 2.3k received. Cost: $0.01 message, $0.01 session.
> The LLM did not conform to the edit format.
> # 1 SEARCH/REPLACE block failed to match!

## SearchReplaceNoExactMatch: This SEARCH block failed to exactly match lines in a.css
Just reply with fixed versions of the block above that failed to match.

Here is the block again.

> Tokens: 14k sent, 200 received.
> Applied edit to a.css

#### thanks

You are welcome.

> Tokens: 14k sent, 5 received.
"""


def test_aider_goes_on_by_itself_and_that_is_not_imitated(tmp_path):
    (tmp_path / "history.md").write_text(AIDER_GOES_ON)
    [conversation] = read_files([str(tmp_path / "history.md")]).conversations
    said = short(conversation)
    assert said[:2] == [("user", "make it blue"), ("assistant", "I change it.")]
    assert said[2][1].endswith("Here is the block again.")
    assert said[3:] == [("user", "thanks"), ("assistant", "You are welcome.")]
    assert conversation.kinds == ("main", "side", "main")


def test_qwen_code_keeps_the_results_of_its_tools(tmp_path):
    base = {"sessionId": "s-4", "parentUuid": None, "cwd": "/w", "version": "0.2"}
    lines = [
        {"uuid": "1", "type": "user", "message": {"role": "user", "parts": [{"text": "list"}]}},
        {
            "uuid": "2",
            "type": "assistant",
            "message": {"role": "model", "parts": [{"functionCall": {"id": "c1", "name": "ls", "args": {"path": "."}}}]},
        },
        {
            "uuid": "3",
            "type": "tool_result",
            "message": {
                "role": "user",
                "parts": [{"functionResponse": {"id": "c1", "name": "ls", "response": {"output": "a.txt"}}}],
            },
        },
        {"uuid": "4", "type": "assistant", "message": {"role": "model", "parts": [{"text": "There is a.txt."}]}},
    ]
    conversation = only(read(tmp_path, *(base | line for line in lines)))
    assert [role for role, _ in short(conversation)] == ["user", "assistant", "tool", "assistant"]
    assert (conversation.messages[2].tool_call_id, conversation.tool_calls, conversation.kinds) == ("c1", 1, ("main", "main"))


def opencode(*messages):
    return {"info": {"id": "ses_1", "directory": "/w", "title": "t"}, "messages": list(messages)}


def _tool(call, **state):
    return {"type": "tool", "callID": call, "tool": "bash", "state": {"input": {"command": call}, **state}}


STEPS = [
    {"type": "step-start"},
    {"type": "reasoning", "text": "hm"},
    _tool("a", status="completed", output="1"),
    _tool("b", status="error", error="denied"),
    {"type": "step-finish", "reason": "tool-calls"},
    {"type": "patch", "hash": "x"},
    {"type": "step-start"},
    {"type": "text", "text": "Done."},
]
OPENCODE = opencode(
    {"info": {"role": "user"}, "parts": [{"type": "text", "text": "Go."}, {"type": "text", "text": "shown", "ignored": True}]},
    {"info": {"role": "assistant", "modelID": "m", "finish": "stop"}, "parts": STEPS},
)


def test_a_session_of_opencode_has_its_steps(tmp_path):
    conversation = only(read(tmp_path, OPENCODE))
    calls = 'bash({"command": "a"}) bash({"command": "b"})'
    assert short(conversation) == [
        ("user", "Go."),
        ("assistant", f"<think>\nhm\n</think> {calls}"),
        ("tool", "1"),
        ("tool", "denied"),
        ("assistant", "Done."),
    ]
    assert (conversation.session, conversation.model, conversation.status) == ("ses_1", "m", "completed")
    assert (conversation.tool_calls, conversation.tool_errors) == (2, 1)


def test_opencode_marks_aborted_answers_and_summaries(tmp_path):
    said = {"parts": [{"type": "text", "text": "I wi"}]}
    cut = said | {"info": {"role": "assistant", "error": {"name": "MessageAbortedError"}}}
    summary = said | {"info": {"role": "assistant", "summary": True, "finish": "stop"}}
    conversation = only(read(tmp_path, opencode(*OPENCODE["messages"], summary, cut)))
    assert (conversation.kinds, conversation.status) == (("main", "main", "side", "main"), "aborted")
