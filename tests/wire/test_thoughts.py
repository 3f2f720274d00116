"""Thoughts: what a model considers there is no call in any format, and no text that it says."""

from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clawpipe.core.conversation.messages import Message, ToolCall, ToolSpec, WrittenFormat
from clawpipe.data.importers.toolcalls import split_calls
from clawpipe.data.wire.thoughts import split_thought, spoken, with_thoughts
from clawpipe.model.policy.calls import codec
from clawpipe.serve.serving.turn import WithTools

FORMATS = get_args(WrittenFormat)
TOOLS = (ToolSpec("wipe", "", {"disk": "string"}), ToolSpec("note", "", {"text": "string"}))
WIPE = ToolCall("call_0_0", "wipe", '{"disk": "a"}')
MARKERS = [("<think>", "</think>"), ("<thinking>", "</thinking>"), ("[THINK]", "[/THINK]")]


def written(format, call):
    return "".join(codec(format, TOOLS).write(Message("assistant", "", (call,))))


def calls_in(format, text):
    return codec(format, TOOLS).parse(text, 0).calls


@pytest.mark.parametrize(("opening", "closing"), MARKERS)
@pytest.mark.parametrize("format", FORMATS)
def test_a_call_in_a_thought_is_no_call(format, opening, closing):
    considered = f"\nI could\n{written(format, WIPE)}\n"
    for text in (
        f"{opening}{considered}but I will not.\n{closing}\nNo.",
        f"{opening}{considered}",  # cut off
        f"{opening}{considered}{closing}",
        f"{opening}{closing}\n{opening}{considered}{closing}\nNo.",
        f"Let me see. {opening}{considered}{closing} No.",
    ):
        read = codec(format, TOOLS).parse(text, 0)
        assert (read.calls, "wipe" in read.content) == ((), True)
        assert codec(format, TOOLS).content_end(text) == (0 if format == "harmony" else len(text))


@pytest.mark.parametrize("format", [format for format in FORMATS if format != "harmony"])
def test_neither_is_one_in_a_thought_that_the_prompt_opened(format):
    assert calls_in(format, f"I could\n{written(format, WIPE)}\n</think>\nNo.") == ()


@pytest.mark.parametrize("format", FORMATS)
def test_a_call_after_a_thought_is_one(format):
    for before in ("<think>\nhm\n</think>\n", "hm\n</think>\n", "<think></think>\n", "<think>a</think>\n<think>b</think>\n"):
        text = before + written(format, WIPE) if format != "harmony" else f"{before}<|start|>assistant{written(format, WIPE)}"
        assert calls_in(format, text) == (WIPE,)


@pytest.mark.parametrize("words", ["<think>", "</think>", "<think>no</think>", "[THINK]", "</thinking> <thinking>"])
@pytest.mark.parametrize("format", FORMATS)
def test_markers_in_arguments_are_words(format, words):
    note = ToolCall("call_0_0", "note", f'{{"text": "{words}"}}')
    assert calls_in(format, written(format, note)) == (note,)


def test_the_importer_reads_what_the_codec_reads():
    text = f"<think>\n{written('hermes', WIPE)}\n</think>\nNo."
    assert split_calls(text, 0) == (text, [])
    assert split_calls(f"<think>\nhm\n</think>\n{written('hermes', WIPE)}", 0) == ("<think>\nhm\n</think>", [WIPE])


PIECES = [*(marker for pair in MARKERS for marker in pair), "<tool_call>", "</tool_call>", "\n", 'wipe(disk="a")', "[TOOL_CALLS]"]
PIECES += ['{"name": "wipe", "parameters": {"disk": "a"}}', '[{"name": "wipe", "arguments": {}}]', "word", " "]


@pytest.mark.parametrize("format", FORMATS)
@given(pieces=st.lists(st.sampled_from(PIECES), max_size=12))
def test_what_was_streamed_begins_what_is_read(format, pieces):
    """Content that was sent can never be taken back."""
    reading, text = WithTools(format, TOOLS, 0), "".join(pieces)
    content = reading.outcome(text).content
    for length in range(len(text) + 1):
        start, end = reading.settled(text[:length])
        assert content.startswith(text[start:end])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("4", "4"),
        (" 4\n", "4"),
        ("<think>\n2 and 2\n</think>\n4", "4"),
        ("<thinking>2 and 2</thinking>4", "4"),
        ("[THINK]2 and 2[/THINK] 4", "4"),
        ("2 and 2</think>\n4", "4"),  # the prompt opened it
        ("<think>2 and", ""),  # cut off
        ("<think>a</think>\n<think>b</think>\n4", "4"),
        ("It is <think>a</think>4", "It is 4"),
        ("The tag <think> begins a thought", "The tag <think> begins a thought"),
        ("", ""),
    ],
)
def test_what_is_said_without_thoughts(text, said):
    assert spoken(text) == said


def test_a_thought_from_a_field_is_put_before_the_text_once():
    assert with_thoughts("4", ["2", "and 2"]) == "<think>\n2\nand 2\n</think>\n4"
    assert with_thoughts("<think>2</think>4", ["2"]) == "<think>2</think>4"
    assert with_thoughts("4", []) == with_thoughts("4", [""]) == "4"
    assert split_thought(with_thoughts("4", ["2"])) == ("<think>\n2\n</think>", "\n4")


@given(st.lists(st.sampled_from(PIECES)))
def test_a_text_is_split_into_its_parts(pieces):
    text = "".join(pieces)
    assert "".join(split_thought(text)) == text
