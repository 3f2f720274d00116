"""Messages of LangChain, AutoGen and smolagents, as their libraries write them."""

import json

import pytest

from tests.importers.logs import only, read, short

SAID = [
    ("system", "be kind"),
    ("user", "weather?"),
    ("assistant", 'weather({"city": "Oslo"})'),
    ("tool", "boom"),
    ("assistant", "3 degrees"),
]
PLAIN = [
    {"content": "be kind", "type": "system", "additional_kwargs": {}, "response_metadata": {}, "name": None, "id": None},
    {"content": "weather?", "type": "human", "name": None, "id": None, "example": False},
    {
        "content": "",
        "type": "ai",
        "tool_calls": [{"name": "weather", "args": {"city": "Oslo"}, "id": "c1", "type": "tool_call"}],
        "invalid_tool_calls": [],
        "usage_metadata": None,
    },
    {"content": "boom", "type": "tool", "tool_call_id": "c1", "status": "error", "artifact": None, "name": None},
    {"content": "3 degrees", "type": "ai", "tool_calls": [], "response_metadata": {"finish_reason": "length"}},
]
CLASSES = {"system": "SystemMessage", "human": "HumanMessage", "ai": "AIMessage", "tool": "ToolMessage"}
IN_DATA = [{"type": one["type"], "data": one} for one in PLAIN]
DUMPED = [
    {"lc": 1, "type": "constructor", "id": ["langchain", "schema", "messages", CLASSES[one["type"]]], "kwargs": one}
    for one in PLAIN
]
FORMS = pytest.mark.parametrize("form", [PLAIN, IN_DATA, DUMPED], ids=["model_dump", "messages_to_dict", "dumpd"])


@FORMS
@pytest.mark.parametrize("place", ["messages", "values"])
def test_langchain_states_are_read_in_all_forms(tmp_path, form, place):
    record = (
        {"messages": form}
        if place == "messages"
        else {"values": {"messages": form, "step": 3}, "config": {"configurable": {"thread_id": "s"}}}
    )
    conversation = only(read(tmp_path, record))
    assert (short(conversation), conversation.kinds) == (SAID, ("main", "main"))
    assert (conversation.tool_errors, conversation.status) == (1, "truncated")
    assert conversation.session == (None if place == "messages" else "s")


@FORMS
def test_langchain_messages_alone_are_a_transcript(tmp_path, form):
    (tmp_path / "chat-7.json").write_text(json.dumps(form))
    conversation = only(read(tmp_path))
    assert (short(conversation), conversation.session) == (SAID, f"{tmp_path.name}/chat-7")


def test_langchain_reads_invalid_calls_and_blocks(tmp_path):
    wrong = {"name": "weather", "args": "{city", "id": "c1", "error": "no JSON"}
    block = {"type": "tool_use", "id": "c2", "name": "weather", "input": {"city": "Rome"}}
    call = {"name": "weather", "args": {"city": "Rome"}, "id": "c2", "type": "tool_call"}
    reply = {"type": "ai", "content": [block], "tool_calls": [call], "invalid_tool_calls": [wrong]}
    conversation = only(read(tmp_path, {"messages": [PLAIN[1], reply]}))
    assert [(one.id, one.malformed) for one in conversation.messages[1].tool_calls] == [("c1", True), ("c2", False)]
    assert conversation.kinds == ("side",)


CALL = {"id": "c1", "name": "weather", "arguments": '{"city": "Oslo"}'}
RESULT = {"call_id": "c1", "name": "weather", "content": "boom", "is_error": True}
TEAM = [
    {"id": "1", "source": "user", "type": "TextMessage", "content": "weather?", "models_usage": None},
    {"source": "bot", "type": "ThoughtEvent", "content": "hm"},
    {"source": "bot", "type": "ToolCallRequestEvent", "content": [CALL]},
    {"source": "bot", "type": "ToolCallExecutionEvent", "content": [RESULT]},
    {"source": "bot", "type": "TextMessage", "content": "3 degrees"},
]
THOUGHT = "<think>\nhm\n</think> "


@pytest.mark.parametrize(
    ("reason", "status"), [("Text 'TERMINATE' mentioned", None), ("Maximum number of turns 4 reached.", "partial"), (None, None)]
)
def test_autogen_results(tmp_path, reason, status):
    conversation = only(read(tmp_path, {"messages": TEAM, "stop_reason": reason}))
    assert short(conversation) == [SAID[1], ("assistant", THOUGHT + SAID[2][1]), *SAID[3:]]
    assert (conversation.tool_errors, conversation.status) == (1, status)


def test_autogen_states_become_a_conversation_for_each_agent(tmp_path):
    context = [
        {"content": "weather?", "source": "user", "type": "UserMessage"},
        {"content": [CALL], "thought": "hm", "source": "bot", "type": "AssistantMessage"},
        {"content": [RESULT], "type": "FunctionExecutionResultMessage"},
        {"content": "3 degrees", "thought": None, "source": "bot", "type": "AssistantMessage"},
    ]
    agent = {"type": "AssistantAgentState", "llm_context": {"messages": context}}
    idle = {"type": "AssistantAgentState", "llm_context": {"messages": context[:1]}}
    states = {"bot/1": {"type": "ChatAgentContainerState", "agent_state": agent}, "idle": idle, "manager": {"turn": 2}}
    expected = [SAID[1], ("assistant", THOUGHT + SAID[2][1]), *SAID[3:]]
    assert short(only(read(tmp_path, {"type": "TeamState", "agent_states": states}))) == expected
    assert short(only(read(tmp_path, agent))) == expected


STEPS = [
    {"system_prompt": "be kind"},
    {"task": "weather?", "task_images": None},
    {
        "step_number": 1,
        "tool_calls": [{"id": "c", "type": "function", "function": {"name": "python_interpreter", "arguments": "weather()"}}],
        "error": {"type": "AgentExecutionError", "message": "no network"},
        "model_output_message": {"role": "assistant", "content": "<code>weather()</code>", "tool_calls": None},
        "model_output": "<code>weather()</code>",
        "code_action": "weather()",
        "observations": None,
        "is_final_answer": False,
    },
    {"step_number": 2, "model_output": "3 degrees", "observations": "Last output", "is_final_answer": True, "error": None},
]
CODED = [*SAID[:2], ("assistant", "<code>weather()</code>"), ("user", "no network"), SAID[4]]


def test_smolagents_steps_alone_and_in_a_result(tmp_path):
    (tmp_path / "run.json").write_text(json.dumps(STEPS, indent=1))
    assert short(only(read(tmp_path))) == CODED


@pytest.mark.parametrize(("state", "status"), [("success", None), ("max_steps_error", "partial")])
def test_smolagents_results_say_how_they_ended(tmp_path, state, status):
    conversation = only(read(tmp_path, {"output": "3", "state": state, "steps": STEPS}))
    assert (short(conversation), conversation.status) == (CODED, status)


def test_smolagents_calls_of_the_api_are_calls(tmp_path):
    call = {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": {"city": "Oslo"}}}
    message = {"role": "assistant", "content": None, "tool_calls": [call]}
    step = {"step_number": 1, "model_output_message": message, "model_output": None, "observations": "boom", "error": None}
    last = {"step_number": 2, "model_output": "3 degrees", "observations": None, "is_final_answer": True}
    conversation = only(read(tmp_path, *STEPS[:2], step, last))
    assert short(conversation) == SAID


def test_agents_of_autogen_do_not_speak_with_one_voice(tmp_path):
    said = [
        {"source": "user", "type": "TextMessage", "content": "a poem"},
        {"source": "writer", "type": "TextMessage", "content": "Roses."},
        {"source": "critic", "type": "TextMessage", "content": "More."},
    ]
    conversation = only(read(tmp_path, {"messages": said, "stop_reason": None}))
    assert short(conversation) == [("user", "a poem"), ("assistant", "Roses."), ("assistant", "More.")]


@pytest.mark.parametrize("name", ["input", "items"])
def test_items_of_the_agents_sdk_in_one_record(tmp_path, name):
    items = [
        {"role": "user", "content": "weather?"},
        {"type": "function_call", "call_id": "c1", "name": "weather", "arguments": '{"city": "Oslo"}'},
        {"type": "function_call_output", "call_id": "c1", "output": "boom"},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "3 degrees"}]},
    ]
    conversation = only(read(tmp_path, {name: items, "session_id": "s"}))
    assert (short(conversation), conversation.session) == (SAID[1:], "s")
    assert read(tmp_path, {name: items[:1]}).reasons() == {"no known format": 1}
