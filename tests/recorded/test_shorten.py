"""Conversations are shortened between turns only; calls stay whole, order is kept, and the budget holds."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clawpipe.core.conversation.messages import Message, ToolCall
from clawpipe.model.policy.renderer import Renderer
from clawpipe.model.policy.tiny import byte_tokenizer
from clawpipe.play.recorded.shorten import shorten, summary_of, turns_of

RENDERER = Renderer(byte_tokenizer(), "pythonic", ())
LONG = "x" * 1000


def count(messages) -> int:
    return len(RENDERER.render_with_mask(messages)[0])


def user(text: str) -> Message:
    return Message("user", text)


def said(text: str) -> Message:
    return Message("assistant", text)


def called(*ids: str) -> Message:
    return Message("assistant", "", tuple(ToolCall(name, "read", '{"file":"a"}') for name in ids))


def result(name: str, text: str = "ok") -> Message:
    return Message("tool", text, tool_call_id=name, name="read")


AGENT = (
    Message("system", "Be brief."),
    user("Fix it."),
    called("c1"),
    result("c1"),
    called("c2"),
    result("c2", LONG),
    called("c3", "c4"),
    result("c3", LONG),
    result("c4"),
    said("Nearly."),
    user("Go on."),
    called("c5"),
    result("c5"),
    said("Done."),
)


def test_a_turn_is_a_reply_with_results_and_what_came_before():
    assert turns_of(AGENT) == [range(2, 4), range(4, 6), range(6, 9), range(9, 10), range(10, 13), range(13, 14)]
    assert turns_of([user("a"), said("b"), user("c"), said("d"), user("e")]) == [range(1, 2), range(2, 5)]
    assert turns_of([user("a")]) == []


def test_a_late_result_keeps_its_turn_together():
    talk = [user("a"), called("x"), said("waiting"), user("and?"), result("x"), said("b")]
    assert turns_of(talk) == [range(1, 5), range(5, 6)]
    again = [user("a"), called("x"), result("x"), called("x"), result("x"), said("b")]  # some number their calls anew
    assert turns_of(again) == [range(1, 3), range(3, 5), range(5, 6)]


def test_tool_results_are_shortened_first_the_oldest_first():
    short = shorten(AGENT, count(AGENT) - 100, count, 1, 2)
    assert (short.results, short.cut) == (1, ())
    assert short.messages[5].content == f"{'x' * 200}\n[... 700 characters left out ...]\n{'x' * 100}"
    assert [one for place, one in enumerate(short.messages) if place != 5] == [one for place, one in enumerate(AGENT) if place != 5]


def test_then_turns_give_way_to_a_summary():
    short = shorten(AGENT, 600, count, 1, 2)
    assert short.tokens <= 600
    assert short.cut == (4, 5, 6, 7, 8)
    assert [message.role for message in short.messages[:5]] == ["system", "user", "assistant", "tool", "user"]
    assert short.messages[4].content.startswith("[Summary of 5 messages that are left out here: 2 of the assistant, 3 of tools]")
    assert short.messages[5:] == AGENT[9:]
    assert short.places == (0, 1, 2, 3, None, 9, 10, 11, 12, 13)


def test_what_has_to_stay_may_be_too_long():
    assert shorten([user("a"), said(LONG), said("b"), said("c")], 300, count, 1, 1) is None
    assert shorten([user(LONG), said("b")], 300, count, 1, 2) is None
    assert shorten([user(LONG)], 300, count, 1, 2) is None


def test_a_summary_says_who_said_and_called_what():
    lines = summary_of([user("Where\nis it?"), called("c1"), result("c1", "in the  cellar"), said("y" * 500)])
    assert lines == [
        "[Summary of 4 messages that are left out here: 1 of the user, 2 of the assistant, 1 of tools]",
        "- user: Where is it?",
        '- assistant called read with {"file":"a"}',
        "- read answered: in the cellar",
        f"- assistant: {'y' * 117}...",
    ]


def test_a_summary_has_as_many_lines_as_there_is_room_for():
    talk = [user("a"), *(said(f"reply {number} {'y' * 400}") for number in range(9))]
    short = shorten(talk, 1600, count, 1, 1)
    first, *lines = short.messages[short.places.index(None)].content.split("\n")
    assert first == f"[Summary of {len(short.cut)} messages that are left out here: {len(short.cut)} of the assistant]"
    assert [line.split(" y")[0] for line in lines] == [f"- assistant: reply {place - 1}" for place in short.cut[-len(lines) :]]
    assert 0 < len(lines) < len(short.cut)  # the newest ones
    assert 1600 - 150 < short.tokens <= 1600


TEXTS = st.text(max_size=30) | st.integers(300, 700).map("w".__mul__)


@st.composite
def conversations(draw) -> list[Message]:
    """Conversations as agents have them: results follow their calls, sometimes after other messages; some ids are used twice."""
    messages = [Message("system", draw(TEXTS))] if draw(st.booleans()) else []
    messages.append(user(draw(TEXTS)))
    for turn in range(draw(st.integers(0, 8))):
        ids = [f"c{turn if draw(st.booleans()) else 0}_{place}" for place in range(draw(st.integers(0, 2)))]
        messages.append(Message("assistant", draw(TEXTS), tuple(ToolCall(name, "read", "{}") for name in ids)))
        answered = [result(name, draw(TEXTS)) for name in ids if draw(st.integers(0, 4))]
        others = [user(draw(TEXTS))] if draw(st.booleans()) else []
        messages += [*others, *answered] if draw(st.booleans()) else [*answered, *others]
    return messages


@settings(max_examples=100, deadline=None)
@given(messages=conversations(), budget=st.integers(30, 2000), first=st.integers(1, 2), last=st.integers(1, 3))
def test_the_budget_holds_and_calls_stay_whole(messages, budget, first, last):
    short = shorten(messages, budget, count, first, last)
    turns = turns_of(messages)
    if short is None:
        kept = [one for turn in (turns[:first] + turns[max(first, len(turns) - last) :]) for one in turn]
        prelude = range(turns[0].start if turns else len(messages))
        least = count([messages[place] for place in [*prelude, *kept]])
        assert least > budget - 150 or count(messages) > budget >= least  # nothing but a summary's one line would have fitted
        return
    assert short.tokens == count(short.messages) <= budget
    places = [place for place in short.places if place is not None]
    assert places == sorted(set(places))  # in their order, each once
    assert set(places) | set(short.cut) == set(range(len(messages)))
    for turn in turns:
        assert len({place in short.cut for place in turn}) == 1  # a turn goes or stays as a whole, with its calls' results
    for place, message in zip(short.places, short.messages, strict=True):
        if place is None:
            assert message.role == "user"
            continue
        before = messages[place]
        assert (message.role, message.tool_calls, message.tool_call_id) == (before.role, before.tool_calls, before.tool_call_id)
        assert message.content == before.content or message.role == "tool"
    ends = [*turns[:first], *turns[max(0, len(turns) - last) :]]
    whole = {*range(turns[0].start if turns else 0), *(place for turn in ends for place in turn)}
    assert all(short.messages[short.places.index(place)] == messages[place] for place in whole)
    if count(messages) <= budget:
        assert short.messages == tuple(messages)


@pytest.mark.parametrize("budget", [400, 700, 1200])
def test_a_shorter_conversation_can_be_shortened_further(budget):
    once = shorten(AGENT, 1500, count, 1, 2)
    again = shorten(once.messages, budget, count, 1, 2)
    assert again is None or again.tokens <= budget
