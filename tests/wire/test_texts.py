"""Texts in parts: one text for the server, imports, the gateway's sessions, and the API of responses."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clawpipe.data.capture.sessions import sessions_of
from clawpipe.data.importers.message import read_messages
from clawpipe.data.wire.dialects.responses_in import messages_of
from clawpipe.data.wire.texts import GrowingText, joined_texts, texts_of
from clawpipe.serve.serving.conversation import to_messages
from clawpipe.serve.serving.protocol import RequestMessage
from tests.capture.test_sessions import turn

CALL = {
    "role": "assistant",
    "content": None,
    "tool_calls": [{"id": "c", "type": "function", "function": {"name": "f", "arguments": ""}}],
}
CASES = [
    ("system", ["Be brief.", "Be kind."], "Be brief.\nBe kind."),
    ("user", ["one", "two"], "one\ntwo"),
    ("user", ["one", "", "two"], "one\n\ntwo"),
    ("user", ["one"], "one"),
    ("user", [], ""),
    ("tool", ["one", "two"], "one\ntwo"),
    ("assistant", ["It was ", "1815", "."], "It was 1815."),
]


def parts(texts):
    return [{"type": "text", "text": text} for text in texts]


@pytest.mark.parametrize(("role", "texts", "text"), CASES)
def test_one_text(role, texts, text):
    assert joined_texts(role, texts) == text
    beside = {"tool_call_id": "c"} if role == "tool" else {}
    given = [CALL, {"role": role, "content": parts(texts)} | beside]
    assert read_messages(given).messages[-1].content == text
    assert to_messages([RequestMessage(**one) for one in given])[-1].content == text


@pytest.mark.parametrize(("role", "texts", "text"), CASES[:-1])
def test_a_result_in_blocks_is_the_same_text(role, texts, text):
    block = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "content": parts(texts)}]}
    assert not texts or read_messages([CALL, block]).messages[-1].content == text


@pytest.mark.parametrize(("role", "texts", "text"), [case for case in CASES if case[0] != "tool"])
def test_items_of_responses_are_the_same_text(role, texts, text):
    kind = "output_text" if role == "assistant" else "input_text"
    [message] = messages_of([{"type": "message", "role": role, "content": [{"type": kind, "text": text} for text in texts]}])
    assert message["content"] == text


@pytest.mark.parametrize("role", ["user", "assistant"])
def test_a_session_goes_on_however_its_texts_are_cut(role):
    texts, text = next((texts, text) for one, texts, text in CASES if one == role and len(texts) > 1)
    said = {"user": "q", "assistant": "a"} | {role: text}
    cut = {name: parts(texts) if name == role else given for name, given in said.items()}
    first = turn(1, [{"role": "user", "content": said["user"]}], said["assistant"])
    history = [{"role": name, "content": cut[name]} for name in ("user", "assistant")]
    [session] = sessions_of([first, turn(2, [*history, {"role": "user", "content": "more"}], "b")]).values()
    assert [one.relation for one in session.turns] == ["starts", "continues"]


def test_content_that_is_not_all_text():
    assert texts_of([*parts(["a"]), {"type": "image_url", "image_url": {}}]) is None
    assert (texts_of("a"), texts_of(None), texts_of(["a", *parts(["b"])])) == (["a"], [], ["a", "b"])


@given(st.lists(st.text(max_size=4)), st.integers(0, 60))
def test_a_growing_text_is_its_pieces(pieces, start):
    text, asked = GrowingText(), GrowingText("ab")
    for piece in pieces:
        text.add(piece)
        asked.add(piece)
        assert str(asked).endswith(piece)  # asking changes nothing
    whole = "".join(pieces)
    assert (text.after(start), str(text), len(text), bool(text)) == (whole[start:], whole, len(whole), bool(whole))
    assert str(asked) == "ab" + whole
