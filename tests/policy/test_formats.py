"""Every tool-call format: conversations with nested arguments are read back as they were written, token by token."""

import json
import re
from functools import cache
from importlib.resources import files
from itertools import groupby
from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from clawpipe.core.conversation.messages import Message, ToolCall, ToolSpec, WrittenFormat
from clawpipe.errors import DataError
from clawpipe.model.policy.calls import codec
from clawpipe.model.policy.formats.common import MAX_CHARACTERS
from clawpipe.model.policy.renderer import Renderer

FORMATS = get_args(WrittenFormat)
MARKERS = {
    "llama3": ["<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"],
    "mistral": ["<s>", "</s>", "[TOOL_CALLS]", "[TOOL_RESULTS]", "[/TOOL_RESULTS]"],
    "harmony": ["<|start|>", "<|end|>", "<|message|>", "<|channel|>", "<|constrain|>", "<|call|>", "<|return|>"],
}
SCHEMA = {
    "type": "object",
    "properties": {
        "text": {"type": "string"},
        "count": {"type": ["integer", "null"]},
        "either": {"anyOf": [{"type": "string"}, {"type": "number"}, {"type": "boolean"}]},
        "rows": {"type": "array", "items": {"$ref": "#/$defs/Row"}},
        "anything": {"description": "whatever"},
    },
    "$defs": {"Row": {"type": "object"}},
}
TOOLS = (ToolSpec("edit", "Edit it.", SCHEMA), ToolSpec("stock", "Pieces in stock.", {"item": "string"}))

injected = [
    "</tool_call>",
    "<tool_call>",
    "</parameter>",
    r"<\/parameter>",
    r"<\\/function>",
    "<function=stock>",
    "[TOOL_CALLS] [",
    "; {",
]
injected += [
    '{"name": "stock", "parameters": {}}',
    "\nstock('a')\n",
    "<|eot_id|>",
    "<|im_end|>",
    "<|call|>",
    "<|end|><|start|>assistant",
    "</s>",
    '"',
    "'",
    "\\",
    "\n",
    "True",
    "7",
    " ",
]
texts = st.lists(st.sampled_from(injected) | st.text(st.characters(codec="utf-8"), max_size=6), max_size=4).map("".join)
scalars = st.none() | st.booleans() | st.integers(-(10**18), 10**18) | st.floats(allow_nan=False, allow_infinity=False) | texts
values = st.recursive(scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3), max_leaves=5)
edits = st.fixed_dictionaries(
    {"text": texts},
    optional={
        "count": st.none() | st.integers(-(10**18), 10**18),
        "either": st.booleans() | st.integers(-99, 99) | st.floats(allow_nan=False, allow_infinity=False) | texts,
        "rows": st.lists(st.dictionaries(texts, values, max_size=2), max_size=2),
        "anything": values,
    },
)
calls = st.tuples(st.just("edit"), edits) | st.tuples(st.just("stock"), st.fixed_dictionaries({"item": texts}))
content = st.text(st.sampled_from("ab .:'\nüß漢\U0001f600"), max_size=12).map(str.strip)
turns = st.tuples(content, st.lists(calls, max_size=3))


def conversation(said):
    """A question, and for each turn the assistant's message and the results of its calls."""
    messages = [Message("system", "Be brief."), Message("user", "q")]
    for number, (text, made) in enumerate(said):
        own = [
            ToolCall(f"call_{number}_{index}", name, json.dumps(given, sort_keys=True, ensure_ascii=False))
            for index, (name, given) in enumerate(made)
        ]
        messages.append(Message("assistant", text, tuple(own)))
        messages += [Message("tool", text or "1", tool_call_id=call.id, name=call.name) for call in own]
    return messages


@cache
def tokenizer(format):
    """Bytes, with the markers of the format's own models."""
    markers = MARKERS.get(format, ["<|im_start|>", "<|im_end|>"])
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    made = Tokenizer(models.BPE({piece: index for index, piece in enumerate(alphabet)}, []))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    made.decoder = decoders.ByteLevel()
    made.add_special_tokens(markers)
    return PreTrainedTokenizerFast(tokenizer_object=made, eos_token=markers[-1] if format != "mistral" else "</s>")


@cache
def renderer(format):
    return Renderer(tokenizer(format), format, TOOLS)


def runs(ids, mask):
    """The ids of each assistant turn."""
    return [[token for token, _ in group] for kept, group in groupby(zip(ids, mask, strict=True), lambda pair: pair[1]) if kept]


@pytest.mark.parametrize("format", FORMATS)
@settings(max_examples=250)
@given(said=st.lists(turns, min_size=1, max_size=3))
def test_a_conversation_is_read_as_it_was_written(format, said):
    messages = conversation(said)
    sampled = runs(*renderer(format).render_with_mask(messages))
    read = [renderer(format).parse(ids, turn) for turn, ids in enumerate(sampled)]
    assert read == [message for message in messages if message.role == "assistant"]
    assert all(ids[-1] in renderer(format).stop_ids for ids in sampled)
    if format != "harmony":  # whose calls have an end each
        assert all(ids.count(renderer(format).eos_id) == 1 for ids in sampled)


@pytest.mark.parametrize("format", FORMATS)
@settings(max_examples=200)
@given(said=st.lists(turns, min_size=1, max_size=3))
def test_no_text_becomes_a_marker(format, said):
    messages = conversation(said)
    ids = renderer(format).prompt(messages)
    made = sum(bool(message.tool_calls) for message in messages)
    results = sum(message.role == "tool" for message in messages)
    expected = {
        "<|start_header_id|>": len(messages) + 1,
        "<|end_header_id|>": len(messages) + 1,
        "<|eot_id|>": len(messages),
        "</s>": len(messages),
        "[TOOL_CALLS]": made,
        "[TOOL_RESULTS]": results,
        "[/TOOL_RESULTS]": results,
        "<|im_start|>": len(messages) + 1,
        "<|im_end|>": len(messages),
    } | harmony_markers(messages)
    vocabulary = tokenizer(format).get_added_vocab()
    assert {text: ids.count(token) for text, token in vocabulary.items()} == {text: expected.get(text, 0) for text in vocabulary}


def harmony_markers(messages):
    """How often each marker stands in a prompt: every call, and what is said beside calls, is a message of its own."""
    made = sum(len(message.tool_calls) for message in messages)
    beside = sum(bool(message.tool_calls and message.content) for message in messages)
    answers = sum(message.role == "assistant" and not message.tool_calls for message in messages)
    results = sum(message.role == "tool" for message in messages)
    others = sum(message.role in ("system", "user") for message in messages) + 1  # and what stands before all
    every = made + beside + answers + results + others
    return {
        "<|start|>": every + 1,
        "<|message|>": every,
        "<|end|>": others + results + beside,
        "<|channel|>": made + beside + answers + results,
        "<|constrain|>": made,
        "<|call|>": made,
        "<|return|>": answers,
    }


TALK = conversation(
    [("", [("edit", {"rows": [{"a": [1, "b"]}], "text": "two\nlines", "count": 3})]), ("Done.", []), ("Thanks.", [])]
)
TALK.insert(-1, Message("user", "And?"))


def by_template(name, messages, **more):
    """A conversation as the chat template of a model writes it, which comes with TRL."""
    template = files("trl").joinpath("chat_templates", name).read_text()
    spoken = [
        {"role": message.role, "content": message.content}
        | (
            {
                "tool_calls": [
                    {"function": {"name": call.name, "arguments": json.loads(call.arguments)}} for call in message.tool_calls
                ]
            }
            if message.tool_calls
            else {}
        )
        for message in messages
    ]
    return tokenizer("hermes").apply_chat_template(spoken, chat_template=template, tokenize=False, **more)


def from_question(text):
    return text[text.index("q<|") :]


def test_llama3_as_its_models_template_writes_it():
    own = tokenizer("llama3").decode(renderer("llama3").render_with_mask(TALK)[0])
    theirs = by_template("llama3_1.jinja", TALK, bos_token="")
    assert from_question(own) == from_question(theirs)


def test_qwen3_coder_as_its_models_template_writes_it():
    own = tokenizer("qwen3-coder").decode(renderer("qwen3-coder").render_with_mask(TALK)[0])
    theirs = by_template("qwen3_6.jinja", TALK).replace("<think>\n\n</think>\n\n", "")  # what was thought is no part of a call
    assert from_question(own) == from_question(theirs)


def test_harmony_as_its_models_template_writes_it():
    """But for the date, the end of earlier answers, which recorded turns keep, and quotes around results."""
    own = tokenizer("harmony").decode(renderer("harmony").render_with_mask(TALK)[0])
    tools = [tool.as_function() for tool in TOOLS]
    theirs = by_template("gptoss.jinja", TALK, tools=tools)
    theirs = re.sub("Current date: .*\n", "", theirs).replace("commentary json", "commentary <|constrain|>json")
    theirs = theirs.replace('"1"', "1").replace("Done.<|end|>", "Done.<|return|>")
    start, end = own.index("namespace"), own.index("q<|")
    assert own[:start] == theirs[:start]
    assert from_question(own) == from_question(theirs)
    assert own[start:end].endswith(
        "type stock = (_: {\nitem: string,\n}) => any;\n\n} // namespace functions<|end|><|start|>user<|message|>"
    )


def test_harmony_tools_are_types():
    """As openai-harmony 0.0.8 writes them; with its vocabulary whole prompts were equal, token by token."""
    place = {"type": "string", "description": "The city."}
    kind = {"type": "string", "enum": ["celsius", "fahrenheit"], "default": "celsius"}
    nested = {"type": "array", "items": {"$ref": "#/$defs/Row"}}
    schema = {
        "type": "object",
        "properties": {"place": place, "format": kind, "days": {"type": ["integer", "null"]}, "rows": nested, "any": {}},
        "required": ["place"],
        "$defs": {"Row": {"type": "object", "properties": {"a": {"anyOf": [{"type": "number"}, {"const": "x"}]}}}},
    }
    described = codec("harmony", (ToolSpec("where", "Says where.", {}), ToolSpec("weather", "It may\nrain.", schema))).describe()
    assert described == (
        "# Tools\n\n## functions\n\nnamespace functions {\n\n"
        "// Says where.\ntype where = () => any;\n\n"
        "// It may\n// rain.\ntype weather = (_: {\n// The city.\nplace: string,\n"
        'format?: "celsius" | "fahrenheit", // default: celsius\ndays?: number | null,\nrows?: {\n    a?: number | "x",\n    }[],\n'
        "any?: any,\n}) => any;\n\n} // namespace functions"
    )


def test_a_harmony_tool_that_refers_to_itself_ends():
    """A type within itself is `any` at some depth."""
    tree = {"$ref": "#/$defs/Tree"}
    schema = {"type": "object", "properties": {"tree": tree}, "$defs": {"Tree": {"type": "array", "items": tree}}}
    assert codec("harmony", (ToolSpec("plant", "", schema),)).describe().count("tree?: any[][]") == 1


@pytest.mark.parametrize(
    "call",
    [
        ' to=functions.stock<|channel|>commentary json<|message|>{"item": "mug"}',
        '<|channel|>commentary to=functions.stock <|constrain|>json<|message|>{"item":"mug"}',
        '<|channel|>commentary to=functions.stock<|constrain|>json<|message|>{"item": "mug"}<|call|>',
    ],
)
def test_harmony_calls_are_read_in_any_order_of_their_header(call):
    thought = "<|channel|>analysis<|message|>Look.<|end|><|start|>assistant"
    said = "<|channel|>commentary<|message|>I look.<|end|><|start|>assistant"
    made = (ToolCall("call_3_0", "stock", '{"item": "mug"}'),)
    assert codec("harmony", TOOLS).parse(call, 3) == ("", made)
    assert codec("harmony", TOOLS).parse(thought + said + call, 3) == ("<think>Look.</think>I look.", made)


def test_a_cut_off_harmony_turn_is_read_as_far_as_it_goes():
    read = codec("harmony", TOOLS).parse
    assert read("<|channel|>anal", 0) == ("", ())
    assert read("<|channel|>final<|message|>It is 5", 0) == ("It is 5", ())
    assert read(" to=functions.stock<|channel|>commentary", 0) == ("", (ToolCall("call_0_0", "stock", "", malformed=True),))
    assert read('<|channel|>commentary to=functions.stock<|message|>{"item', 0).calls[0].malformed
    assert read("no header at all", 0) == ("no header at all", ())


def test_a_harmony_thought_goes_into_the_analysis():
    message = Message("assistant", "<think>Hm.</think>Five.")
    [ids] = runs(*renderer("harmony").render_with_mask([message]))
    text = "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|>Five.<|return|>"
    assert tokenizer("harmony").decode(ids) == text
    assert renderer("harmony").parse(ids, 0) == message


def test_mistral_as_its_models_write_it():
    own = tokenizer("mistral").decode(
        renderer("mistral").ids_of(conversation([("Look.", [("stock", {"item": "mug"}), ("stock", {"item": "[TOOL_CALLS]"})])])[2:])
    )
    assert own == (
        '### assistant\nLook.\n[TOOL_CALLS] [{"name": "stock", "arguments": {"item": "mug"}}, '
        '{"name": "stock", "arguments": {"item": "[TOOL_CALLS]"}}]</s>\n'
        '### tool\n[TOOL_RESULTS] {"content": "Look."}[/TOOL_RESULTS]</s>\n'
        '### tool\n[TOOL_RESULTS] {"content": "Look."}[/TOOL_RESULTS]</s>\n'
    )


@pytest.mark.parametrize("format", ["llama3", "mistral", "qwen3-coder"])
def test_tools_are_described_with_their_whole_schema(format):
    described = codec(format, TOOLS).describe()
    assert json.dumps(TOOLS[0].as_function()) in described
    assert codec(format, ()).describe() == ""


@pytest.mark.parametrize(
    ("format", "text"),
    [
        ("llama3", '{"name": "stock", "parameters": {"item": "mug"}}'),
        ("llama3", '<|python_tag|>{"name": "stock", "arguments": {"item": "mug"}}'),
        ("llama3", '  {"name":"stock","parameters":{"item":"mug"}}\n'),
        ("mistral", '[TOOL_CALLS] [{"name": "stock", "arguments": {"item": "mug"}, "id": "a1b2c3d4e"}]'),
        ("mistral", '[TOOL_CALLS][{"arguments": {"item": "mug"}, "name": "stock"}]'),
        ("qwen3-coder", "<tool_call><function=stock><parameter=item>mug</parameter></function></tool_call>"),
        ("qwen3-coder", "<tool_call>\n<function=stock>\n<parameter=item>\nmug\n</parameter>\n</function>\n"),
    ],
)
def test_ways_to_write_one_call(format, text):
    assert codec(format, TOOLS).parse(text, 2) == ("", (ToolCall("call_2_0", "stock", '{"item": "mug"}'),))


@pytest.mark.parametrize(
    ("format", "text", "content", "names"),
    [
        ("llama3", 'I look.\n{"name": "a", "parameters": {}}; {"name": "b", "parameters": {}}\nDone.', "I look.\n\nDone.", "ab"),
        ("llama3", '{"name": "a", "parameters": {}}\n{"name": "b", "parameters": {}}', "", "ab"),
        (
            "mistral",
            'I look.[TOOL_CALLS] [{"name": "a", "arguments": {}}] and [TOOL_CALLS] [{"name": "b", "arguments": {}}]',
            "I look. and",
            "ab",
        ),
        (
            "qwen3-coder",
            "I look.\n\n<tool_call><function=a></function></tool_call>\n<tool_call><function=b></function></tool_call>",
            "I look.",
            "ab",
        ),
    ],
)
def test_several_calls_and_text(format, text, content, names):
    found = codec(format, TOOLS).parse(text, 1)
    assert found.content == content
    assert found.calls == tuple(ToolCall(f"call_1_{index}", name, "{}") for index, name in enumerate(names))


@pytest.mark.parametrize(
    ("format", "opening", "body", "name"),
    [
        ("llama3", "", '{"name": "stock", "parameters": {"item": "mug"', ""),
        ("llama3", "", '{"name": "stock", "parameters": "mug"}', "stock"),
        ("llama3", "", '{"name": "stock", "parameters": {"item": NaN}}', "stock"),
        ("llama3", "", '{"name": 3, "parameters": {}}', ""),
        ("llama3", "", '{"name": "stock", "parameters": {"item": "' + "a" * MAX_CHARACTERS + '"}}', ""),
        ("llama3", "", '{"name": "stock", "parameters": ' + "[" * 4000, ""),
        ("mistral", "[TOOL_CALLS] ", '[{"name": "stock", "arguments": {"item": "mug"', ""),
        ("mistral", "[TOOL_CALLS] ", '{"name": "stock", "arguments": {}}', ""),
        ("mistral", "[TOOL_CALLS] ", '[{"name": "stock", "arguments": {}}, {"name": "stock", "arguments": 1}]', "stock"),
        ("mistral", "[TOOL_CALLS] ", "[]", ""),
        ("mistral", "[TOOL_CALLS] ", "stock", ""),
        ("mistral", "[TOOL_CALLS] ", "[" * 4000, ""),
        ("qwen3-coder", "<tool_call>", "<function=stock><parameter=item>mug</function>", "stock"),
        ("qwen3-coder", "<tool_call>", "<function=stock>item</function>", "stock"),
        ("qwen3-coder", "<tool_call>", "<function=stock><parameter=item>a</parameter>", ""),
        ("qwen3-coder", "<tool_call>", '{"name": "stock", "arguments": {}}', ""),
        (
            "qwen3-coder",
            "<tool_call>",
            "<function=stock><parameter=item>a</parameter><parameter=item>b</parameter></function>",
            "stock",
        ),
    ],
)
def test_what_is_no_call_is_kept_as_evidence(format, opening, body, name):
    assert codec(format, TOOLS).parse(f"{opening}{body}", 0) == ("", (ToolCall("call_0_0", name, body, malformed=True),))


@pytest.mark.parametrize("format", ["llama3", "mistral", "qwen3-coder"])
@pytest.mark.parametrize("text", ["The answer is 57.", '{"total": 57}', "Use [1, 2] or {a}.", "", "a < b; c > d"])
def test_prose_is_no_call(format, text):
    assert codec(format, TOOLS).parse(text, 0) == (text, ())


@pytest.mark.parametrize(
    ("key", "text", "value"),
    [
        ("text", "7", "7"),
        ("text", "null", "null"),
        ("count", "7", 7),
        ("count", "null", None),
        ("count", "None", None),
        ("count", "many", "many"),
        ("either", "7.5", 7.5),
        ("either", "True", True),
        ("either", "[7]", "[7]"),
        ("either", '"7"', "7"),
        ("rows", '[{"a": 1}]', [{"a": 1}]),
        ("rows", "[{", "[{"),
        ("anything", "7", 7),
        ("unknown", "7", "7"),
    ],
)
def test_the_schema_decides_the_type_of_a_plain_value(key, text, value):
    written = f"<tool_call><function=edit><parameter={key}>{text}</parameter></function></tool_call>"
    [call] = codec("qwen3-coder", TOOLS).parse(written, 0).calls
    assert json.loads(call.arguments) == {key: value}
    assert type(json.loads(call.arguments)[key]) is type(value)


@pytest.mark.parametrize(("name", "arguments"), [("a>b", "{}"), ("stock", '{"a\\nb": 1}'), ("", "{}")])
def test_a_name_that_no_tag_can_hold_needs_another_format(name, arguments):
    message = Message("assistant", "", (ToolCall("c", name, arguments),))
    with pytest.raises(DataError, match="hermes"):
        codec("qwen3-coder", TOOLS).write(message)
