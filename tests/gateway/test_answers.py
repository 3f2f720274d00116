"""Answers put together from their chunks: any chunking of any stream gives the same record."""

from __future__ import annotations

import asyncio
import json
from contextlib import contextmanager

import aiohttp
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clawpipe.serve.gateway.adapters import _answer_unseen
from clawpipe.serve.gateway.answers import ClientOptions, Collected, stripped
from clawpipe.serve.gateway.events import Splitter, events, is_done
from clawpipe.serve.gateway.exchange import Exchange
from clawpipe.serve.gateway.forms import CollectedText
from clawpipe.serve.gateway.responses import CollectedResponse
from clawpipe.serve.gateway.secret import Secret
from clawpipe.serve.serving.evidence import Asker

OSLO, ROME = '{"city": "Oslo"}', '{"city": "Rome"}'


class Reply:
    """An engine's reply that comes in these pieces."""

    def __init__(self, pieces):
        self._pieces, self.content = pieces, self

    async def iter_any(self):
        for piece in self._pieces:
            yield piece


def events_of(*pieces: bytes) -> list[bytes]:
    async def listed():
        return [event async for event in events(Reply(pieces))]

    return asyncio.run(listed())


def collected(*pieces: bytes, kind=Collected) -> Collected:
    found = kind()
    for event in events_of(*pieces):
        if is_done(event):
            break
        found.add_event(event)
    return found


def sse(*bodies) -> bytes:
    return b"".join(b"data: " + json.dumps(body).encode() + b"\n\n" for body in bodies) + b"data: [DONE]\n\n"


def delta(index=0, reason=None, **fields):
    return {"id": "r", "model": "m", "choices": [{"index": index, "delta": fields, "finish_reason": reason}]}


def calling(*calls, **more):
    return delta(tool_calls=list(calls), **more)


def called(id=None, name=None, arguments=None, index=None, **more):
    function = {key: value for key, value in (("name", name), ("arguments", arguments)) if value is not None}
    given = {"id": id, "index": index} | ({"function": function} if function else {}) | more
    return {key: value for key, value in given.items() if value is not None}


def calls_of(*bodies):
    """Names, ids and arguments of the calls that these deltas make."""
    [answer] = collected(sse(*bodies, delta(reason="tool_calls"))).answers(with_tokens=False)
    return [(call["function"]["name"], call.get("id"), call["function"].get("arguments")) for call in answer.message["tool_calls"]]


TWO = [("weather", "a", OSLO), ("weather", "b", ROME)]


@pytest.mark.parametrize(
    "bodies",
    [
        # OpenAI and vLLM: by index, id and name at first
        [
            calling(called("a", "weather", "", 0), called("b", "weather", "", 1)),
            calling(called(arguments=OSLO[:5], index=0)),
            calling(called(arguments=ROME[:9], index=1)),
            calling(called(arguments=OSLO[5:], index=0), called(arguments=ROME[9:], index=1)),
        ],
        # one index for all, with ids: whole, in one delta, and in fragments
        [calling(called("a", "weather", OSLO, 0)), calling(called("b", "weather", ROME, 0))],
        [calling(called("a", "weather", OSLO, 0), called("b", "weather", ROME, 0))],
        [
            calling(called("a", "weather", "", 0)),
            calling(called(arguments=OSLO, index=0)),
            calling(called("b", "weather", "", 0)),
            calling(called(arguments=ROME, index=0)),
        ],
        # by id alone, interleaved
        [
            calling(called("a", "weather", OSLO[:4])),
            calling(called("b", "weather", ROME[:6])),
            calling(called("a", arguments=OSLO[4:])),
            calling(called("b", arguments=ROME[6:])),
        ],
        # no index, and an id with the first fragment only
        [
            calling(called("a", "weather")),
            calling(called(arguments=OSLO)),
            calling(called("b", "weather")),
            calling(called(arguments=ROME)),
        ],
        # the id first, the name in the next delta
        [
            calling(called("a", index=0, type="function")),
            calling(called(name="weather", index=0)),
            calling(called(arguments=OSLO, index=0)),
            calling(called("b", index=0, type="function")),
            calling(called(name="weather", arguments=ROME, index=0)),
        ],
        # a name with each fragment, and once more at the end
        [
            calling(called("a", "weather", OSLO[:5], 0), called("b", "weather", ROME[:5], 1)),
            calling(called("a", "weather", OSLO[5:], 0), called("b", "weather", ROME[5:], 1)),
            calling(called("a", "weather", "", 0)),
        ],
        # a call that comes once more as a whole
        [
            calling(called("a", "weather", OSLO, 0)),
            calling(called("b", "weather", ROME, 1)),
            calling(called("a", "weather", OSLO, 0)),
        ],
    ],
)
def test_streamed_calls_are_told_apart(bodies):
    assert calls_of(*bodies) == TWO


def test_calls_without_ids_are_told_apart_by_name_or_index():
    whole = [calling(called(name="weather", arguments=OSLO, index=0)), calling(called(name="weather", arguments=ROME, index=0))]
    other = [calling(called(name="clock", arguments="", index=None)), calling(called(name="weather", arguments=ROME))]
    at_once = [calling(called(name="weather", arguments=OSLO), called(name="weather", arguments=ROME))]
    assert calls_of(*whole) == calls_of(*at_once) == [("weather", None, OSLO), ("weather", None, ROME)]
    assert calls_of(*other) == [("clock", None, ""), ("weather", None, ROME)]


def test_one_id_for_all_calls_is_not_one_call():
    bodies = [calling(*(called("c", "weather", given[:4], index) for index, given in ((0, OSLO), (1, ROME))))]
    bodies += [calling(called("c", arguments=given[4:], index=index)) for index, given in ((0, OSLO), (1, ROME))]
    assert calls_of(*bodies) == [("weather", "c", OSLO), ("weather", "c", ROME)]


def test_repeated_names_are_not_glued():
    bodies = [calling(called(name="weather", arguments=part, index=0)) for part in ("", '{"city"', ': "Oslo"}', "")]
    assert calls_of(*bodies) == [("weather", None, '{"city": "Oslo"}')]


def test_a_new_id_with_each_fragment_is_one_call():
    """Older vLLM made up an id for each delta."""
    parts = [
        called("x1", "weather", None, 0),
        *(called(f"x{n}", arguments=part, index=0) for n, part in enumerate(('{"city', '": 1}', ""), 2)),
    ]
    assert calls_of(*map(calling, parts)) == [("weather", "x1", '{"city": 1}')]


def test_calls_whose_arguments_are_objects_are_kept():
    bodies = [calling(called("a", "weather", {"city": "Oslo"}, 0)), calling(called("b", "weather", {}, 0))]
    assert calls_of(*bodies) == [("weather", "a", {"city": "Oslo"}), ("weather", "b", {})]


def test_the_older_function_call_and_custom_calls_grow():
    legacy = [
        delta(function_call={"name": "f", "arguments": ""}),
        *(delta(function_call={"arguments": one}) for one in ('{"a"', ": 1}")),
    ]
    custom = [calling({"index": 0, "id": "c", "type": "custom", "custom": {"name": "sql", "input": ""}})]
    custom += [calling({"index": 0, "custom": {"input": part}}) for part in ("SELECT ", "1")]
    [answer] = collected(sse(*legacy, delta(reason="function_call"))).answers(with_tokens=False)
    assert answer.message["function_call"] == {"name": "f", "arguments": '{"a": 1}'}
    [answer] = collected(sse(*custom, delta(reason="tool_calls"))).answers(with_tokens=False)
    assert answer.message["tool_calls"] == [{"id": "c", "type": "custom", "custom": {"name": "sql", "input": "SELECT 1"}}]


@pytest.mark.parametrize(
    ("bodies", "why"),
    [
        ([calling(called("a", index=0)), calling(called(arguments=OSLO, index=0))], "a call without a name"),
        ([calling(called(arguments=OSLO))], "a call without a name"),
        ([calling(called("a", "get_", "", 0)), calling(called(name="weather", index=0))], "a call that changes its name"),
        ([calling(called("a", "f", "", 0)), calling(called("a", "g", OSLO, 0))], "a call that changes its name"),
        (
            [calling(called("a", "f", "{", 0)), calling(called("a", arguments={"b": 1}))],
            "arguments that are neither one text nor one object",
        ),
        ([calling("f")], "a call that is no object"),
        ([calling(called("a", "f", "{}")), calling(called(arguments=" "), called(arguments=" "))], "a fragment of no known call"),
        ([calling(called("a", "f", "", 0)), calling({"id": "a", "custom": {"input": "x"}})], "a call that changes its kind"),
        ([delta(audio={"data": "UklG"}), delta(audio={"data": "R"})], "sound that comes in fragments"),
        ([delta(content="a"), "no chunk"], "no JSON"),
        ([], "no answer in it"),
    ],
)
def test_what_no_message_holds_is_not_captured(bodies, why):
    assert collected(sse(*bodies)).uncaptured() == why


def test_an_answer_that_comes_once_more_whole_is_not_doubled():
    again = {"choices": [{"index": 0, "message": {"role": "assistant", "content": "How many"}, "finish_reason": "stop"}]}
    [answer] = collected(sse(delta(role="assistant", content="How"), delta(content=" many"), again)).answers(with_tokens=False)
    assert answer.message == {"role": "assistant", "content": "How many"}


def test_content_in_parts_grows():
    parts = [[{"type": "thinking", "thinking": "Hm."}], [{"type": "text", "text": "a"}], [{"type": "text", "text": "b"}]]
    [answer] = collected(sse(*(delta(content=one) for one in parts), delta(content="c"))).answers(with_tokens=False)
    assert answer.message["content"] == [{"type": "thinking", "thinking": "Hm."}, {"type": "text", "text": "abc"}]


@pytest.mark.parametrize(
    ("stream", "ending"),
    [
        (sse(delta(content="a"), delta(reason="stop")), "complete"),
        (b": OPENROUTER PROCESSING\n\n" + sse(delta(content="a"), delta(reason="stop")), "complete"),
        (sse(delta(content="a"), delta(reason="length")), "complete"),
        # vLLM, SGLang and LiteLLM: an error event, then the mark
        (sse(delta(content="a"), {"error": {"message": "EngineCore died", "type": "InternalServerError", "code": 500}}), "broken"),
        (sse(delta(content="a"), delta(reason="stop"), {"error": {"message": "late"}}), "broken"),
        (
            sse(delta(content="a"), {"object": "error", "message": "CUDA error", "type": "InternalServerError", "code": 500}),
            "broken",
        ),
        # Ollama: the error is a text, and no mark follows
        (sse(delta(content="a"), {"error": "model runner has unexpectedly stopped"}), "broken"),
        # llama.cpp: earlier a field of its own
        (b'data: {"choices":[{"index":0,"delta":{"content":"a"}}]}\n\nerror: {"code":500}\n\ndata: [DONE]\n\n', "broken"),
        (sse(delta(content="a"), delta(reason="stop")).replace(b"data: [DONE]", b"event: error\ndata: {}"), "broken"),
        (sse(delta(content="a"), delta(reason="stop")).replace(b"data: [DONE]", b'{"error":{"message":"gone"}}'), "broken"),
        (sse(delta(content='error: {"error": 1}'), delta(reason="stop")), "complete"),
        # OpenRouter: a chunk with both, or an error in the choice
        (sse(delta(content="a"), delta(reason="error") | {"error": {"code": "server_error", "message": "gone"}}), "broken"),
        (
            sse(delta(content="a"), {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop", "error": {"code": 502}}]}),
            "broken",
        ),
        (sse(delta(content="a"), delta(reason="error")), "broken"),
        (sse(delta(content="a"), delta(reason="abort")), "broken"),
        (sse(delta(content="a"), delta()), "broken"),
        (sse(delta(content="a"), delta(reason="")), "broken"),
        (sse(delta(content="a"), delta(index=1, content="b"), delta(reason="stop")), "broken"),
        # fields that say that nothing is wrong
        (sse(delta(content="a") | {"error": None}, delta(reason="stop") | {"error": {}}), "complete"),
    ],
)
def test_failures_are_read_in_every_form(stream, ending):
    assert collected(stream).ending("marked") == ending


@pytest.mark.parametrize("indices", [(0, 1), (None, None), (0, 0), (5, 3)])
def test_whole_choices_are_never_glued(indices):
    found = Collected()
    texts = ("a", "b") if indices != (5, 3) else ("b", "a")
    choices = [{"index": index, "message": {"content": text}} for index, text in zip(indices, texts, strict=True)]
    found.add({"choices": choices})
    assert [one.message["content"] for one in found.answers(with_tokens=False)] == ["a", "b"]


@pytest.mark.parametrize(
    ("message", "why"),
    [
        ({"tool_calls": [{"id": "c", "type": "function", "function": {"arguments": "{}"}}]}, "a call without a name"),
        ({"tool_calls": [{"id": "c", "type": "mcp", "mcp": {"name": "f"}}]}, "a call without a name"),
        ({"tool_calls": ["f"]}, "a call that is no object"),
        ({"function_call": {"arguments": "{}"}}, "a call without a name"),
        ({"tool_calls": [{"index": 0, "id": "c", "type": "custom", "custom": {"name": "sql", "input": "x"}}]}, None),
    ],
)
def test_whole_calls_have_names(message, why):
    found = Collected()
    found.add({"choices": [{"message": message}]})
    assert found.uncaptured() == why


@pytest.mark.parametrize(
    ("body", "ending"),
    [
        ({"choices": [{"message": {"content": "a"}, "finish_reason": "stop"}]}, "complete"),
        ({"choices": [{"message": {"content": "a"}, "finish_reason": None}]}, "broken"),
        ({"choices": [{"message": {"content": "a"}}]}, "broken"),
        ({"choices": [{"message": {"content": ""}, "finish_reason": "error", "error": {"code": 502}}]}, "broken"),
        ({"choices": [{"message": {"content": "a"}, "finish_reason": "abort"}]}, "broken"),
        ({"choices": []}, "broken"),
        ({"error": {"message": "no"}}, "broken"),
        ({"error": {"message": "no"}, "choices": [{"message": {"content": "a"}, "finish_reason": "stop"}]}, "broken"),
    ],
)
def test_whole_answers_end_as_streamed_ones(body, ending):
    found = Collected()
    found.add(body)
    assert found.ending("marked") == ending


def test_text_completions_end_the_same_way():
    chunks = [{"choices": [{"index": 0, "text": one, "finish_reason": reason}]} for one, reason in (("a", None), ("b", "stop"))]
    assert collected(sse(*chunks), kind=CollectedText).ending("marked") == "complete"
    assert collected(sse(*chunks[:1]), kind=CollectedText).ending("marked") == "broken"
    assert collected(sse(*chunks, {"error": {"message": "x"}}), kind=CollectedText).ending("marked") == "broken"


@pytest.mark.parametrize("end", [b"\n\n", b"\n", b"", b"\r\n\r\n", b"\r"])
def test_a_last_event_needs_no_blank_line(end):
    assert events_of(b"data: 1\n\ndata: [DONE]" + end) == [b"data: 1\n\n", b"data: [DONE]\n\n"]
    assert events_of(b"data: 1\n\n: still there" + end)[:1] == [b"data: 1\n\n"]


@pytest.mark.parametrize("half", [b'data: {"id": "x", "choi', b"data: [DO", b"dat", b'data: {"a": 1', b"event: er"])
def test_half_an_event_is_never_handed_on(half):
    async def listed(seen):
        async for event in events(Reply([b"data: 1\n\n", half])):
            seen.append(event)

    seen: list[bytes] = []
    with pytest.raises(aiohttp.ClientPayloadError):
        asyncio.run(listed(seen))
    assert seen == [b"data: 1\n\n"]


OPTIONS = ClientOptions(token_ids=False, logprobs=False, usage=False, reasoning=False)


def test_stripping_changes_nothing_that_is_collected():
    body = {
        "prompt_token_ids": [1],
        "usage": {"completion_tokens": 1},
        "choices": [
            {
                "index": 0,
                "message": {"content": "a", "reasoning": "Hm.", "provider_specific_fields": {"x": 1}},
                "provider_specific_fields": {"token_ids": [2], "x": 1},
                "logprobs": {"content": [{"logprob": -0.5}]},
                "finish_reason": "stop",
            }
        ],
    }
    before, after = Collected(), Collected()
    before.add(json.loads(json.dumps(body)))
    left = stripped(body, OPTIONS)
    after.add(body)  # in the other order
    assert left == {
        "choices": [
            {
                "index": 0,
                "message": {"content": "a", "provider_specific_fields": {"x": 1}},
                "provider_specific_fields": {"x": 1},
                "logprobs": None,
                "finish_reason": "stop",
            }
        ]
    }
    assert [after.answers(True), after.prompt, after.usage] == [before.answers(True), before.prompt, before.usage]


# Any stream: what one choice says, and the ways in which engines may cut it up.
texts = st.text(st.characters(exclude_categories=("Cs",)), max_size=12)
arguments = st.dictionaries(texts, texts | st.integers(-9, 9) | st.lists(texts, max_size=2), max_size=3)
answers = st.tuples(texts, texts, st.lists(st.tuples(st.sampled_from(["weather", "clock", "get_x"]), arguments), max_size=3))


@st.composite
def streams(draw):
    """A choice's message, deltas that spell it, and the bytes of their stream in pieces."""
    content, thought, calls = draw(answers)
    style = draw(st.sampled_from(["index", "one index", "no index"]))
    always = draw(st.booleans()) or style != "index"  # an id with each fragment
    names = draw(st.booleans())  # a name with each fragment
    queues = [pieces(draw, "content", content), pieces(draw, "reasoning_content", thought)]
    queues += [call_pieces(draw, n, call, style, always, names) for n, call in enumerate(calls)]
    deltas = [{"role": "assistant"}]
    while any(queues):
        deltas.append(draw(st.sampled_from([queue for queue in queues if queue])).pop(0))
    message = (
        {"role": "assistant"} | ({"content": content} if content else {}) | ({"reasoning_content": thought} if thought else {})
    )
    if calls:
        order = [one["tool_calls"][0]["id"] for one in deltas if "tool_calls" in one and "id" in one["tool_calls"][0]]
        made = {f"c{n}": whole_call(n, call) for n, call in enumerate(calls)}
        message["tool_calls"] = [made[name] for name in dict.fromkeys(order)]
    return message, cut(draw, draw_bytes(draw, deltas))


def pieces(draw, name, text):
    return [{name: part} for part in split(draw, text)]


def call_pieces(draw, number, call, style, always, names):
    name, given = call
    parts = split(draw, json.dumps(given))
    index = {"index": {"index": number, "one index": 0}[style]} if style != "no index" else {}
    return [
        {
            "tool_calls": [
                index
                | ({"id": f"c{number}", "type": "function"} if always or not place else {})
                | {"function": ({"name": name} if names or not place else {}) | {"arguments": part}}
            ]
        }
        for place, part in enumerate(parts)
    ]


def whole_call(number, call):
    return {"id": f"c{number}", "type": "function", "function": {"name": call[0], "arguments": json.dumps(call[1])}}


def split(draw, text):
    places = sorted(draw(st.lists(st.integers(0, len(text)), max_size=4))) if text else []
    return [text[start:end] for start, end in zip([0, *places], [*places, len(text)], strict=True) if start < end]


def draw_bytes(draw, deltas):
    end = draw(st.sampled_from([b"\n", b"\r\n", b"\r"]))
    chunks = [json.dumps(delta(**one), ensure_ascii=draw(st.booleans())).encode() for one in deltas]
    chunks += [json.dumps(delta(reason="stop")).encode(), b"[DONE]"]
    noise = st.sampled_from([b"", b": keep-alive" + end + end, end, b"event: message" + end])
    return b"".join(draw(noise) + b"data:" + draw(st.sampled_from([b" ", b""])) + chunk + end + end for chunk in chunks)


def cut(draw, data):
    places = sorted(draw(st.lists(st.integers(0, len(data)), max_size=30)))
    return [data[start:end] for start, end in zip([0, *places], [*places, len(data)], strict=True)]


LINES = [
    b"data: {}",
    b'data:{"a": 1}',
    b": still there",
    b"event: x",
    b"data: [DONE]",
    b"data: {",
    b"",
    b"x",
    b"\n",
    b"\r",
    b"\r\n",
]


def outcome(*pieces):
    seen: list[bytes] = []

    async def listed():
        async for event in events(Reply(pieces)):
            seen.append(event)

    try:
        asyncio.run(listed())
    except aiohttp.ClientPayloadError as error:
        return seen, str(error)
    return seen, None


@settings(max_examples=200, deadline=None)
@given(st.data(), st.lists(st.sampled_from(LINES), max_size=12))
def test_bytes_give_the_same_events_wherever_they_are_cut(data, lines):
    whole = b"".join(lines)
    assert outcome(*cut(data.draw, whole)) == outcome(whole) == outcome(*(whole[n : n + 1] for n in range(len(whole))))


@settings(max_examples=200, deadline=None)
@given(streams())
def test_any_chunking_of_any_stream_gives_the_same_record(stream):
    message, parts = stream
    found = collected(*parts)
    assert (found.uncaptured(), found.ending("marked")) == (None, "complete")
    [answer] = found.answers(with_tokens=False)
    assert {name: value for name, value in answer.message.items() if value} == message
    assert answer.finish_reason == "stop"


class Version:
    """A version on trial that only counts."""

    def __init__(self):
        self.failed: list[bool] = []

    @contextmanager
    def answering(self):
        yield

    def count_answer(self, collected, failed, asker, request):
        self.failed.append(failed)


@pytest.mark.parametrize(
    ("status", "body", "failed"),
    [
        (200, {"choices": [{"message": {"content": "a"}, "finish_reason": "stop"}]}, False),
        (200, {"choices": [{"message": {"content": "a"}, "finish_reason": "length"}]}, False),
        (200, {"choices": [{"message": {"content": "a"}, "finish_reason": None}]}, True),
        (200, {"error": {"message": "gone"}}, True),
        (200, {"choices": [{"message": {"content": ""}, "finish_reason": "error"}]}, True),
        (200, [], True),
        (400, {"error": {"message": "the client's fault"}}, False),
        (500, {"error": {"message": "gone"}}, True),
    ],
)
def test_an_unseen_answer_fails_where_a_seen_one_would(status, body, failed):
    class Upstream:
        secret = Secret("")

        async def ask(self, *_):
            reply = Reply([])
            reply.status = status
            reply.read = read
            return reply

    async def read():
        return json.dumps(body).encode()

    version = Version()
    asyncio.run(_answer_unseen(version, Upstream(), {"model": "m", "messages": []}, Asker()))
    assert version.failed == [failed]


NAMES = [
    *("choices", "index", "delta", "message", "content", "tool_calls", "function", "custom", "name", "arguments", "id", "error"),
    *("finish_reason", "logprobs", "usage", "token_ids", "function_call", "audio", "type", "text", "output", "response", "item"),
]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 2) | st.sampled_from(["", "a", "{}", "stop", "text", "response.completed"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=4),
    max_leaves=12,
)
CHUNKS = st.fixed_dictionaries({"choices": st.lists(st.dictionaries(st.sampled_from(NAMES), JSON, max_size=4), max_size=3)}) | JSON


@settings(max_examples=150, deadline=None)
@given(st.sampled_from([Collected, CollectedText, CollectedResponse]), st.lists(CHUNKS, max_size=4))
def test_no_engine_makes_the_gateway_fail(kind, bodies):
    found = collected(sse(*bodies), kind=kind)
    assert found.ending("marked") in ("complete", "broken")
    if found.uncaptured() is None:
        json.dumps([one.message for one in found.answers(with_tokens=found.no_tokens() is None)])
    for body in bodies:
        if isinstance(body, dict):
            assert stripped(body, OPTIONS) is None or json.dumps(body)


def test_a_header_of_the_engine_may_hold_any_bytes():
    """aiohttp decodes them as UTF-8, and keeps other bytes as half surrogates."""
    sent: list[dict] = []

    async def send(message):
        sent.append(message)

    async def run():
        exchange = Exchange({"method": "POST", "path": "/v1/chat/completions", "headers": []}, send, send)
        await exchange.start(200, {"x-ratelimit-note": "\u2013\udcff"})

    asyncio.run(run())
    assert (b"x-ratelimit-note", b"\xe2\x80\x93\xff") in sent[0]["headers"]


MANY = 200_000  # with which a text that is copied for each delta takes minutes


@pytest.mark.parametrize(
    ("delta", "content"),
    [
        ({"content": "ab" * 20}, "ab" * 20 * MANY),
        ({"content": [{"type": "text", "text": "ab"}]}, [{"type": "text", "text": "ab" * MANY}]),
        ({"content": [{"type": "image", "n": 1}]}, [{"type": "image", "n": 1}] * MANY),
    ],
    ids=["text", "texts", "parts"],
)
def test_many_deltas_are_put_together(delta, content):
    collected = Collected()
    for _ in range(MANY):
        collected.add({"choices": [{"index": 0, "delta": delta}]})
    [answer] = collected.answers(with_tokens=False)
    assert answer.message["content"] == content


def test_an_event_of_many_pieces_is_searched_once():
    splitter, piece = Splitter(), b"x" * 1024
    for _ in range(20_000):
        assert not list(splitter.add(piece))
    assert [len(event) for event in splitter.add(b"\r\n\r\n")] == [20_000 * 1024 + 2]
