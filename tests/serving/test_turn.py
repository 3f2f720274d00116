"""When parts of a turn can be sent, and that none is lost or sent twice."""

from typing import get_args

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from clawpipe.core.conversation.messages import ToolSpec, WrittenFormat
from clawpipe.model.engines.base import Likelihood
from clawpipe.model.engines.sampling import Token
from clawpipe.model.policy.renderer import Renderer
from clawpipe.model.policy.tiny import byte_tokenizer
from clawpipe.serve.serving.tokens import TextStream
from clawpipe.serve.serving.turn import Plain, Turn, WithTools

TOOLS = (ToolSpec("stock", "Pieces in stock.", {"item": "string"}), ToolSpec("add", "Sum.", {"a": "number", "b": "number"}))
TOKENIZER = byte_tokenizer()
PIECES = ["stock(", 'stock(item="mug")', "add(1, 2)", "\n", " ", "sto", "The answer", 'print("x")', "<tool_call>", "</tool_call>",
          "é", "😀", '{"name": "stock", "arguments": {"item": "mug"}}', '{"name": "drop", "arguments": {}}',
          '{"name": "stock", "parameters": {"item": "mug"}}', "; ", "[TOOL_CALLS]", "[TOOL", "[", "{", "<|python_tag|>",
          "<function=stock>", "</function>", "<parameter=item>", "</parameter>", "<tool", ")", "a", "ab", "ba"]  # fmt: skip
texts = st.lists(st.sampled_from(PIECES) | st.text(st.characters(codec="utf-8"), max_size=3), max_size=8).map("".join)
stops = st.lists(st.sampled_from(["a", "ab", "ba", "aba", "\n", "mug", "😀", "k("]), max_size=3)


def play(text, stop=(), reading=None):
    """The deltas of a turn that says `text`, its outcome, and the ids that went in."""
    turn = Turn(TextStream(TOKENIZER.backend_tokenizer), stop, reading or Plain())
    deltas, ids = [], []
    for token in TOKENIZER(text, add_special_tokens=False)["input_ids"]:
        ids.append(token)
        turn.push(Token(token, 0.0, Likelihood(0.0, [])))
        deltas.append(turn.settled())
        if turn.stopped:
            break
    rest, outcome = turn.end()
    return [*deltas, rest], outcome, ids


def content(deltas):
    return "".join(delta.content for delta in deltas)


@given(texts, stops)
def test_plain_text_ends_before_the_first_stop_string(text, stop):
    places = [text.index(word) for word in stop if word in text]
    expected = text[: min(places)] if places else text
    deltas, outcome, ids = play(text, stop)
    assert content(deltas) == outcome.content == expected
    sent = [token.id for delta in deltas for token in delta.tokens]
    assert sent == ids[: len(sent)]
    assert TOKENIZER.decode(sent).startswith(expected)
    if not places:
        assert sent == ids


@given(texts, stops, st.sampled_from(get_args(WrittenFormat)))
@example("stock(\nab", ["ab"], "hermes")  # white space before what may become a stop string
def test_a_stream_with_tools_is_the_turn_as_a_whole(text, stop, style):
    deltas, outcome, ids = play(text, stop, WithTools(style, TOOLS, 2))
    assert content(deltas) == outcome.content
    sent = [token.id for delta in deltas for token in delta.tokens]
    assert sent == ids[: len(sent)]
    if not stop:
        assert sent == ids
        message = Renderer(TOKENIZER, style, TOOLS).parse(ids, 2)
        good = all(not call.malformed and call.name in ("stock", "add") for call in message.tool_calls)
        assert outcome.calls == (message.tool_calls if good else ())
        assert outcome.content == (message.content if good else text.strip())


@pytest.mark.parametrize(
    ("style", "text", "calls"),
    [
        ("pythonic", 'I look.\nstock(item="mug")', [("call_2_0", "stock", '{"item": "mug"}')]),
        (
            "pythonic",
            'stock("mug")\nadd(1, 2)',
            [("call_2_0", "stock", '{"item": "mug"}'), ("call_2_1", "add", '{"a": 1, "b": 2}')],
        ),
        ("pythonic", "stock(mug)", []),  # malformed
        ("pythonic", 'print("x")', []),  # not on offer
        ("pythonic", 'stock(item="mug"', []),
        (
            "hermes",
            'So:\n<tool_call>\n{"name": "add", "arguments": {"b": 2, "a": 1}}\n</tool_call>',
            [("call_2_0", "add", '{"b": 2, "a": 1}')],
        ),
        ("hermes", '<tool_call>\n{"name": "stock"}\n</tool_call>', [("call_2_0", "stock", "{}")]),
        ("hermes", '<tool_call>\n{"name": "stock", "arguments": [1]}\n</tool_call>', []),
        (
            "llama3",
            '{"name": "add", "parameters": {"b": 2, "a": 1}}; {"name": "stock", "parameters": {"item": "mug"}}',
            [("call_2_0", "add", '{"b": 2, "a": 1}'), ("call_2_1", "stock", '{"item": "mug"}')],
        ),
        (
            "mistral",
            'So: [TOOL_CALLS] [{"name": "stock", "arguments": {"item": "mug"}}]',
            [("call_2_0", "stock", '{"item": "mug"}')],
        ),
        (
            "qwen3-coder",
            "<tool_call>\n<function=add>\n<parameter=a>\n1\n</parameter>\n<parameter=b>\n2\n</parameter>\n</function>\n</tool_call>",
            [("call_2_0", "add", '{"a": 1, "b": 2}')],
        ),
        ("llama3", '{"total": 57}', []),
        ("hermes", '<tool_call>\n{"name": "drop", "arguments": {}}\n</tool_call>', []),
    ],
)
def test_calls(style, text, calls):
    deltas, outcome, _ = play(text, (), WithTools(style, TOOLS, 2))
    assert [(call.id, call.name, call.arguments) for call in outcome.calls] == calls
    if not calls:
        assert content(deltas) == text


def test_text_is_sent_as_soon_as_it_can_be_no_call():
    deltas, _, _ = play('The stock.\nstock(item="mug")', (), WithTools("pythonic", TOOLS, 0))
    by_character = [delta.content for delta in deltas]
    assert by_character[: len("The stock.")] == ["T", "h", "e", "", " s", "t", "o", "c", "k", "."]
    assert not any(by_character[len("The stock.") :])
    deltas, _, _ = play("sto, add(", (), WithTools("pythonic", TOOLS, 0))
    assert [delta.content for delta in deltas][:4] == ["", "", "", "sto,"]
    deltas, _, _ = play("a <b<to", (), WithTools("hermes", TOOLS, 0))
    assert [delta.content for delta in deltas] == ["a", "", "", " <b", "", "", "", "<to"]


def test_text_is_held_back_no_longer_than_a_stop_string_needs():
    deltas, _, _ = play("abcd", ["cde"])
    assert [delta.content for delta in deltas] == ["a", "b", "", "", "cd"]
