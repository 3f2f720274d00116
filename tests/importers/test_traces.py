"""What programs that watch models write: users, sessions, both sides of a call, and what failed."""

import hashlib
import json

import pytest

from tests.importers.logs import only, read, short

ASKED, FOUR = {"role": "user", "content": "2+2?"}, {"role": "assistant", "content": "4"}
BLANK = "redacted-by-litellm"  # what LiteLLM writes for each text under `turn_off_message_logging`
CHOICES = {"id": "x", "choices": [{"index": 0, "message": FOUR, "finish_reason": "length"}]}
HUMAN = {"lc": 1, "type": "constructor", "id": ["langchain", "schema", "messages", "HumanMessage"], "kwargs": {"content": "2+2?"}}
AI = {"lc": 1, "type": "constructor", "id": ["langchain", "schema", "messages", "AIMessage"], "kwargs": {"content": "4"}}
GENERATED = {"generations": [[{"text": "4", "message": AI, "generation_info": {"finish_reason": "length"}}]], "llm_output": {}}

LITELLM = {
    "id": "x",
    "trace_id": "s1",
    "call_type": "acompletion",
    "response_cost": 0.1,
    "status": "success",
    "model": "m",
    "end_user": "ann",
    "metadata": {"user_api_key_user_id": "team"},
    "model_parameters": {"temperature": 0.5, "stream": False},
    "messages": [ASKED],
    "response": CHOICES,
}
LANGSMITH = {
    "id": "r",
    "run_type": "llm",
    "session_id": "a project",
    "inputs": {"messages": [[HUMAN]]},
    "outputs": GENERATED,
    "error": None,
    "extra": {"metadata": {"thread_id": "s1", "user_id": "ann", "ls_model_name": "m"}},
}
HELICONE = {
    "request_id": "r",
    "request_user_id": "ann",
    "request_properties": {"Helicone-Session-Id": "s1"},
    "response_status": 200,
    "request_model": "m",
    "request_body": {"messages": [ASKED], "model": "m"},
    "response_body": CHOICES,
}
BRAINTRUST = {
    "id": "r",
    "span_id": "a",
    "root_span_id": "a",
    "span_attributes": {"type": "llm", "name": "Chat Completion"},
    "input": [ASKED],
    "output": CHOICES["choices"],
    "metadata": {"model": "m", "session_id": "s1", "user_id": "ann"},
    "scores": {},
}
WEAVE = {
    "id": "r",
    "op_name": "weave:///me/p/op/openai.chat.completions.create:abc",
    "trace_id": "t",
    "thread_id": "s1",
    "attributes": {"user_id": "ann"},
    "inputs": {"self": "OpenAI()", "messages": [ASKED], "model": "m"},
    "output": CHOICES,
    "exception": None,
}
PHOENIX = {
    "name": "ChatCompletion",
    "context": {"trace_id": "t", "span_id": "s"},
    "attributes": {
        "openinference": {"span": {"kind": "LLM"}},
        "session": {"id": "s1"},
        "user": {"id": "ann"},
        "llm": {
            "model_name": "m",
            "input_messages": [{"message": {"role": "user", "content": "2+2?"}}],
            "output_messages": [{"message": {"role": "assistant", "content": "4"}}],
        },
    },
}
COLUMNS = {
    "context.trace_id": "t",
    "span_kind": "LLM",
    "attributes.session.id": "s1",
    "attributes.user.id": "ann",
    "attributes.llm.model_name": "m",
    "attributes.llm.input_messages": [{"message.role": "user", "message.content": "2+2?"}],
    "attributes.llm.output_messages": [{"message.role": "assistant", "message.content": "4"}],
}
FLAT = {
    "attributes": {
        "openinference.span.kind": "LLM",
        "session.id": "s1",
        "user.id": "ann",
        "llm.model_name": "m",
        "llm.input_messages.0.message.role": "user",
        "llm.input_messages.0.message.content": "2+2?",
        "llm.output_messages.0.message.role": "assistant",
        "llm.output_messages.0.message.content": "4",
    }
}
BODY = {"messages": [{"role": "user", "content": [{"text": "2+2?"}]}], "inferenceConfig": {"temperature": 0.5}}
BEDROCK = {
    "schemaType": "ModelInvocationLog",
    "schemaVersion": "1.0",
    "operation": "Converse",
    "modelId": "m",
    "requestMetadata": {"session_id": "s1", "user_id": "ann"},
    "input": {"inputContentType": "application/json", "inputBodyJson": BODY, "inputTokenCount": 4},
    "output": {
        "outputContentType": "application/json",
        "outputBodyJson": {"output": {"message": {"role": "assistant", "content": [{"text": "4"}]}}, "stopReason": "max_tokens"},
    },
}


def mlflow_span(name, kind, asked, answered, code="OK", **attributes):
    """A span as `Trace.to_json()` of MLflow 3.17 writes it: each attribute is JSON in a text."""
    sides = {"mlflow.spanType": kind, "mlflow.spanInputs": asked, "mlflow.spanOutputs": answered}
    spelled = {key: json.dumps(value) for key, value in (sides | attributes).items()}
    status = {"code": f"STATUS_CODE_{code}", "message": ""}
    return {"trace_id": "x==", "span_id": name, "parent_span_id": None, "name": name, "status": status, "attributes": spelled}


MLFLOW = {
    "info": {
        "trace_id": "tr-1",
        "state": "OK",
        "trace_metadata": {"mlflow.trace.session": "s1", "mlflow.trace.user": "ann", "mlflow.user": "root"},
    },
    "data": {
        "spans": [
            mlflow_span("agent", "AGENT", {"question": "2+2?"}, "4"),
            mlflow_span("a", "CHAT_MODEL", {"messages": [ASKED], "temperature": 0.5}, CHOICES, **{"mlflow.llm.model": "m"}),
        ]
    },
}
CUT = {"litellm": LITELLM, "langsmith": LANGSMITH, "helicone": HELICONE, "braintrust": BRAINTRUST, "weave": WEAVE} | {
    "bedrock": BEDROCK,
    "mlflow": MLFLOW,
}


@pytest.mark.parametrize(("name", "record"), [*CUT.items(), ("phoenix", PHOENIX), ("phoenix", COLUMNS), ("phoenix", FLAT)])
def test_a_call_has_its_user_session_model_and_sides(tmp_path, name, record):
    reading = read(tmp_path, record)
    conversation = only(reading)
    assert (short(conversation), dict(reading.formats)) == ([("user", "2+2?"), ("assistant", "4")], {name: 1})
    assert (conversation.session, conversation.user, conversation.model) == ("s1", "ann", "m")
    assert conversation.status == ("truncated" if name in CUT else None)


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        (LITELLM | {"status": "failure", "response": {}}, "a call in LiteLLM's log that failed"),
        (LITELLM | {"response": None}, "a call in LiteLLM's log without messages, or without an answer"),
        (LITELLM | {"messages": [{"role": "user", "content": BLANK}]}, "a call in LiteLLM's log whose texts were blanked"),
        (LITELLM | {"messages": BLANK, "response": {"text": BLANK}}, "a call in LiteLLM's log whose texts were blanked"),
        (
            HELICONE | {"response_body": {"choices": [{"message": FOUR | {"content": BLANK}}]}},
            "a log of Helicone whose texts were blanked",
        ),
        (LANGSMITH | {"error": "boom"}, "a LangSmith run that failed"),
        (LANGSMITH | {"run_type": "tool"}, "a LangSmith run of another kind than llm, without messages in its output"),
        (LANGSMITH | {"outputs": {}}, "a LangSmith run without messages in its output"),
        (HELICONE | {"response_status": 429}, "a call in Helicone's log that failed"),
        (HELICONE | {"request_body": {}}, "a log of Helicone without messages in its input"),
        (BRAINTRUST | {"span_attributes": {"type": "tool"}}, "a span of Braintrust of another type than llm"),
        (BRAINTRUST | {"error": "boom"}, "a span of Braintrust that failed"),
        (WEAVE | {"exception": "boom"}, "a call of Weave that failed"),
        (COLUMNS | {"span_kind": "CHAIN"}, "an OpenInference span of another kind than LLM"),
        (COLUMNS | {"status_code": "ERROR"}, "an OpenInference span that failed"),
        (FLAT | {"status": {"code": "ERROR", "message": "boom"}}, "an OpenInference span that failed"),
        (FLAT | {"status": {"code": 2}}, "an OpenInference span that failed"),
        (BEDROCK | {"errorCode": "ThrottlingException"}, "an invocation in Bedrock's log that failed"),
        (BEDROCK | {"output": {}}, "a log of Bedrock without messages in its output"),
        (MLFLOW | {"data": {"spans": [mlflow_span("a", "LLM", "q", None, "ERROR")]}}, "a span of MLflow that failed"),
    ],
)
def test_what_failed_or_says_nothing_is_rejected_by_name(tmp_path, record, reason):
    assert read(tmp_path, record).reasons() == {reason: 1}


def test_the_root_of_a_graph_holds_all_messages(tmp_path):
    call = {"name": "add", "args": {"a": 2}, "id": "c1"}
    messages = [
        {"type": "human", "content": "2+2?"},
        {"type": "ai", "content": "", "tool_calls": [call]},
        {"type": "tool", "content": "4", "tool_call_id": "c1"},
        {"type": "ai", "content": "4"},
    ]
    conversation = only(read(tmp_path, LANGSMITH | {"run_type": "chain", "outputs": {"messages": messages}}))
    assert short(conversation) == [("user", "2+2?"), ("assistant", 'add({"a": 2})'), ("tool", "4"), ("assistant", "4")]
    assert conversation.kinds == ("main", "main")


def test_openinference_calls_are_calls(tmp_path):
    call = {"tool_call.id": "c1", "tool_call.function.name": "add", "tool_call.function.arguments": '{"a": 2}'}
    answer = {"message.role": "assistant", "message.tool_calls": [call]}
    conversation = only(read(tmp_path, COLUMNS | {"attributes.llm.output_messages": [answer]}))
    [made] = conversation.messages[1].tool_calls
    assert (made.id, made.name, made.arguments) == ("c1", "add", '{"a": 2}')


@pytest.mark.parametrize("url", ["https://a.example/cat.png", "data:image/png;base64,AAAA"])
def test_a_picture_of_openinference_leaves_its_place(tmp_path, url):
    parts = [
        {"message_content.type": "text", "message_content.text": "What is this?"},
        {"message_content.type": "image", "message_content.image.image.url": url},
    ]
    asked = [{"message.role": "user", "message.contents": parts}]
    conversation = only(read(tmp_path, COLUMNS | {"attributes.llm.input_messages": asked}))
    shown = url if url.startswith("https") else f"sha256:{hashlib.sha256(url.encode()).hexdigest()}"
    assert short(conversation)[0] == ("user", f"What is this?\n[image: {shown}]")
    assert conversation.extra["messages"][0]["content"]["unread"] == [{"type": "image", "image": {"url": url}}]


def test_scores_and_thumbs_are_judgements(tmp_path):
    scored = only(read(tmp_path, BRAINTRUST | {"scores": {"Factuality": 1, "Brevity": 0.5, "Skipped": None}}))
    assert [(one.value, one.origin) for one in scored.judgements] == [(0.75, "custom")]
    liked = only(read(tmp_path, HELICONE | {"feedback": {"rating": False}}))
    assert [(one.value, one.origin) for one in liked.judgements] == [(0.0, "user")]


def test_litellm_falls_back_to_the_user_of_the_key(tmp_path):
    assert only(read(tmp_path, LITELLM | {"end_user": ""})).user == "team"


def test_a_row_of_litellms_database_is_a_call(tmp_path):
    """Its columns `user` and `model` are no question and no answer."""
    spent = {"request_id": "r", "call_type": "acompletion", "spend": 0.1, "user": "ann", "model": "m", "session_id": "s1"}
    sides = {"messages": json.dumps([ASKED]), "response": json.dumps(CHOICES)}
    sent = {"messages": {}, "response": CHOICES, "proxy_server_request": {"messages": [ASKED], "tools": [{"name": "f"}]}}
    for row in (spent | sides, spent | sent):
        conversation = only(read(tmp_path, row))
        assert short(conversation) == [("user", "2+2?"), ("assistant", "4")]
        assert (conversation.session, conversation.user, conversation.model) == ("s1", "ann", "m")
    assert conversation.tools
    unlogged = spent | {"messages": {}, "response": {}}
    assert read(tmp_path, unlogged).reasons() == {"a call in LiteLLM's log without messages, or without an answer": 1}


ITEMS = [
    {"type": "reasoning", "summary": [{"type": "summary_text", "text": "sum"}]},
    {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "4"}]},
]
CALLED = [
    ASKED,
    {"type": "function_call", "call_id": "c", "name": "add", "arguments": "{}"},
    {"type": "function_call_output", "call_id": "c", "output": "4"},
]


@pytest.mark.parametrize(
    "record",
    [
        LITELLM | {"call_type": "aresponses", "messages": CALLED, "response": {"status": "completed", "output": ITEMS}},
        HELICONE | {"request_body": {"input": CALLED}, "response_body": {"status": "completed", "output": ITEMS}},
        BRAINTRUST | {"input": CALLED, "output": ITEMS},
        WEAVE | {"inputs": {"input": CALLED}, "output": {"output": ITEMS}},
    ],
)
def test_traces_hold_calls_of_the_responses_api(tmp_path, record):
    conversation = only(read(tmp_path, record))
    thought = "<think>\nsum\n</think>\n4"
    assert short(conversation) == [("user", "2+2?"), ("assistant", "add({})"), ("tool", "4"), ("assistant", thought)]
    assert conversation.kinds == ("side", "main")


def test_instructions_of_a_responses_call_are_its_system_message(tmp_path):
    body = {"input": "2+2?", "instructions": "Count."}
    conversation = only(read(tmp_path, HELICONE | {"request_body": body, "response_body": {"output": ITEMS}}))
    assert short(conversation)[0] == ("system", "Count.")
    later = HELICONE | {"request_body": body | {"previous_response_id": "r0"}, "response_body": {"output": ITEMS}}
    assert read(tmp_path, later).reasons() == {"a response that goes on with one that only the server has": 1}


def _otlp(*spans):
    """Spans as a collector writes them: each attribute is a text, or an integer, which its JSON spells as a text."""
    kinds = {str: "stringValue", int: "intValue"}
    listed = [
        {
            "traceId": "t",
            "attributes": [{"key": f"gen_ai.{key}", "value": {kinds[type(value)]: str(value)}} for key, value in span.items()],
        }
        for span in spans
    ]
    return {"resourceSpans": [{"scopeSpans": [{"spans": listed}]}]}


def _parts(role, kind="text", **fields):
    return {"role": role, "parts": [{"type": kind} | fields]}


WORDS = json.dumps([_parts("user", content="2+2?")])
CALL, RESULT = (
    _parts("assistant", "tool_call", id="c", name="add", arguments={}),
    _parts("tool", "tool_call_response", id="c", result="4"),
)
ANSWER = _parts("assistant", content="4")
SPAN = {"operation.name": "chat", "input.messages": WORDS, "output.messages": json.dumps([ANSWER]), "request.temperature": 1}


def test_a_whole_temperature_of_a_span_is_a_number(tmp_path):
    assert short(only(read(tmp_path, _otlp(SPAN)))) == [("user", "2+2?"), ("assistant", "4")]


def test_an_agents_span_with_results_is_one_conversation(tmp_path):
    agent = SPAN | {"operation.name": "invoke_agent", "output.messages": json.dumps([CALL, RESULT, ANSWER])}
    conversation = only(read(tmp_path, _otlp(agent)))
    assert short(conversation) == [("user", "2+2?"), ("assistant", "add({})"), ("tool", "4"), ("assistant", "4")]
    assert conversation.kinds == ("main", "main")


def test_an_agents_span_repeats_the_calls_beside_it(tmp_path):
    conversation = only(read(tmp_path, _otlp(SPAN | {"operation.name": "invoke_agent"}, SPAN)))
    assert [one["refused"] for one in conversation.extra["spans"]] == ["a span of an agent, beside those of its calls"]


def _span(operation, answer, trace="t"):
    sides = {"gen_ai.input.messages": WORDS, "gen_ai.output.messages": json.dumps([_parts("assistant", content=answer)])}
    return {"context": {"trace_id": trace}, "attributes": {"gen_ai.operation.name": operation} | sides}


OF_LANGFUSE = {"type": "GENERATION", "traceId": "t", "input": [ASKED], "output": FOUR}
FINAL = {"messages": [{"type": "human", "content": "2+2?"}, {"type": "ai", "content": "So 4."}]}
WRAPPED = [
    (_span("chat", "4"), _span("invoke_agent", "So 4.")),
    (OF_LANGFUSE, {"id": "t", "timestamp": "2026", "release": None, "tags": [], "input": "2+2?", "output": "So 4."}),
    (OF_LANGFUSE, OF_LANGFUSE | {"type": "AGENT", "output": "So 4."}),
    (LANGSMITH | {"trace_id": "t"}, LANGSMITH | {"trace_id": "t", "run_type": "chain", "outputs": FINAL}),
    (BRAINTRUST, BRAINTRUST | {"span_attributes": {"type": "task"}, "output": "So 4."}),
    (WEAVE, WEAVE | {"op_name": "weave:///me/p/op/solve:abc", "inputs": {"question": "2+2?"}, "output": "So 4."}),
]


@pytest.mark.parametrize(("call", "around"), WRAPPED)
def test_what_wraps_calls_on_other_lines_repeats_them(tmp_path, call, around):
    assert short(only(read(tmp_path, around))) == [("user", "2+2?"), ("assistant", "So 4.")]
    for records in ((call, around), (around, call)):
        reading = read(tmp_path, *records)
        assert [short(one)[-1] for one in reading.conversations] == [("assistant", "4")]
        assert reading.reasons() == {"a record of an agent, a chain or a trace, beside those of its calls": 1}


def test_what_wraps_the_calls_of_another_trace_is_read(tmp_path):
    reading = read(tmp_path, _span("chat", "4"), _span("invoke_agent", "So 4.", trace="u"))
    assert [short(one)[-1][1] for one in reading.conversations] == ["4", "So 4."]


def test_a_judged_span_stays_beside_its_calls(tmp_path):
    """Its score is of no other record."""
    judged = BRAINTRUST | {"span_attributes": {"type": "eval"}, "scores": {"Right": 1}}
    reading = read(tmp_path, BRAINTRUST, judged)
    assert (len(reading.conversations), reading.reasons()) == (2, {})


def test_a_batch_of_spans_loses_what_wraps_calls(tmp_path):
    """A collector's next batch begins with another trace, and ends with the span of the agent."""
    agent, call = SPAN | {"operation.name": "invoke_agent", "output.messages": json.dumps([ANSWER])}, _otlp(SPAN)
    batch = _otlp(SPAN, agent)
    batch["resourceSpans"][0]["scopeSpans"][0]["spans"][0]["traceId"] = "u"
    reading = read(tmp_path, call, batch)
    assert (len(reading.conversations), reading.reasons(), reading.silent.total()) == (2, {}, 1)


EVENTS = [
    {"type": "message_start", "message": {"role": "assistant", "content": []}},
    {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Let me "}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "add."}},
    {"type": "content_block_start", "index": 1, "content_block": {"type": "tool_use", "id": "c", "name": "add", "input": {}}},
    {"type": "content_block_delta", "index": 1, "delta": {"type": "input_json_delta", "partial_json": '{"a"'}},
    {"type": "content_block_delta", "index": 1, "delta": {"type": "input_json_delta", "partial_json": ": 2}"}},
    {"type": "message_delta", "delta": {"stop_reason": "tool_use"}},
]
LLAMA = "<|begin_of_text|><|start_header_id|>user<|end_header_id|>2+2?<|eot_id|><|start_header_id|>assistant<|end_header_id|>"


@pytest.mark.parametrize(
    ("asked", "answered", "said", "status"),
    [
        ({"messages": [ASKED]}, {"content": [{"type": "text", "text": "4"}], "stop_reason": "end_turn"}, "4", "completed"),
        ({"messages": [ASKED]}, EVENTS, 'Let me add. add({"a": 2})', "completed"),
        ({"prompt": LLAMA}, {"generation": "4", "stop_reason": "length"}, "4", "truncated"),
        ({"inputText": "2+2?"}, {"results": [{"outputText": "4", "completionReason": "FINISH"}]}, "4", "completed"),
        ({"inputText": "2+2?"}, [{"outputText": "4"}, {"outputText": "!", "completionReason": "FINISH"}], "4!", "completed"),
        ({"message": "2+2?"}, {"text": "4", "finish_reason": "COMPLETE"}, "4", "completed"),
    ],
)
def test_bedrock_logs_bodies_of_many_makers(tmp_path, asked, answered, said, status):
    log = BEDROCK | {"input": {"inputBodyJson": asked}, "output": {"outputBodyJson": answered}}
    for record in (log, {"timestamp": 1, "message": json.dumps(log)}):  # the second as CloudWatch holds it
        conversation = only(read(tmp_path, record))
        assert short(conversation) == [("user", "2+2?"), ("assistant", said)]
        assert (conversation.status, conversation.session) == (status, "s1")


def test_bedrock_offers_tools_and_answers_them(tmp_path):
    spec = {"name": "add", "description": "d", "inputSchema": {"json": {"type": "object"}}}
    call = {"toolUse": {"toolUseId": "t", "name": "add", "input": {"a": 2}}}
    result = {"toolResult": {"toolUseId": "t", "content": [{"text": "4"}, {"json": {"b": 1}}]}}
    messages = [*BODY["messages"], {"role": "assistant", "content": [call]}, {"role": "user", "content": [result]}]
    body = {"messages": messages, "system": [{"text": "Count."}], "toolConfig": {"tools": [{"toolSpec": spec}]}}
    conversation = only(read(tmp_path, BEDROCK | {"input": {"inputBodyJson": body}}))
    assert short(conversation)[2:4] == [("assistant", 'add({"a": 2})'), ("tool", '4\n{"b": 1}')]
    [tool] = json.loads(conversation.tools)
    assert (short(conversation)[0], tool["function"]["name"]) == (("system", "Count."), "add")


def _assessed(*given):
    names = ("assessment_name", "feedback", "span_id")
    said = [dict(zip(names, (name, {"value": value}, span), strict=True)) for name, value, span in given]
    return MLFLOW | {"info": MLFLOW["info"] | {"assessments": said}}


def test_feedback_of_mlflow_judges_its_call(tmp_path):
    for given, judged in [
        ([("user_feedback", True, None), ("quality", 0.5, None)], [(1.0, "user")]),
        ([("quality", 0.5, "a")], [(0.5, "custom")]),
        ([("quality", 0.5, None), ("tone", 1, None)], []),
    ]:
        reading = read(tmp_path, _assessed(*given))
        assert [(one.value, one.origin) for one in only(reading).judgements] == judged
    assert list(reading.outcomes) == [f"info.assessments.{name}.feedback.value" for name in ("quality", "tone")]


def test_rows_of_a_search_for_traces_are_traces(tmp_path):
    row = MLFLOW["info"] | {"spans": MLFLOW["data"]["spans"], "request": {"question": "2+2?"}, "response": "4", "trace": "{}"}
    assert only(read(tmp_path, row)).session == "s1"
    root = row | {"spans": [mlflow_span("chat", "CHAIN", {"question": "2+2?"}, "So 4.")]}
    assert short(only(read(tmp_path, root))) == [("user", "2+2?"), ("assistant", "So 4.")]
