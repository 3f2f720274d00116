"""Code that asks a model by itself, played turn by turn."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from clawpipe.core.conversation.messages import Message, ToolCall
from clawpipe.play.environments.libraries.asking import Asked, AskingEpisode, first_request, read, written

ASKED = [{"role": "system", "content": "Count."}, {"role": "user", "content": [{"type": "text", "text": "One?"}]}]


async def counts(asked: Asked) -> list[str]:
    """A library's loop of two turns."""
    messages: list[Any] = list(ASKED)
    for number in ("Two?", None):
        messages.append(written(await asked.ask(messages), None))
        if number:
            messages.append({"role": "user", "content": number})
    return [message["content"] for message in messages if message["role"] == "assistant"]


async def fails(asked: Asked) -> None:
    await asked.ask(ASKED)
    raise KeyError("answer")


async def rewrites(asked: Asked) -> None:
    await asked.ask(ASKED)
    await asked.ask([{"role": "user", "content": "something else"}])


async def asks_nothing(asked: Asked) -> None: ...


def played(run: Callable[[Asked], Any], replies: Sequence[str | Message], expected: list[Message] | None = None) -> Any:
    """Play an episode; return what each reply was answered with, and the evidence."""

    async def play() -> Any:
        episode = AskingEpisode(run, expected or read(ASKED), lambda said, messages: {"said": said, "all": len(messages)})
        await episode.begin()
        answers = []
        try:
            for reply in replies:
                answers.append(
                    await episode.respond([*read(ASKED), Message("assistant", reply) if isinstance(reply, str) else reply])
                )
            return answers, await episode.finish("done")
        finally:
            await episode.close()

    return asyncio.run(play())


def test_each_turn_goes_back_to_the_code_that_asked():
    [first, second], verdict = played(counts, ["1", "2"])
    assert (first.messages, first.done) == ([Message("user", "Two?")], False)
    assert (second.messages, second.done) == ((), True)
    assert verdict.evidence == {"said": ["1", "2"], "all": 4}


def test_an_unfinished_run_has_no_verdict():
    assert played(counts, ["1"])[1] is None


@pytest.mark.parametrize(
    ("run", "replies", "error"),
    [
        (fails, ["1"], "answer"),
        (rewrites, ["1"], "changed what was said before"),
        (asks_nothing, [], "without asking"),
    ],
)
def test_what_goes_wrong_is_raised_in_its_turn(run, replies, error):
    with pytest.raises((KeyError, ValueError), match=error):
        played(run, replies)


def test_another_beginning_than_the_items_is_refused():
    with pytest.raises(ValueError, match="something else than when the item was made"):
        played(counts, ["1"], [Message("user", "Three?")])


def test_the_first_request_makes_an_item():
    request = asyncio.run(first_request(counts))
    assert read(request.messages) == [Message("system", "Count."), Message("user", "One?")]
    with pytest.raises(ValueError, match="without asking"):
        asyncio.run(first_request(asks_nothing))


def test_calls_are_written_and_read():
    message = Message("assistant", "", (ToolCall("c1", "look", '{"at": 1}'),))
    assert read([written(message, [{"type": "function"}])]) == [message]


def test_calls_are_text_for_who_offers_no_tools():
    call = Message("assistant", "Look.", (ToolCall("c1", "look", '{"at": 1}'),))
    text = 'Look.\n<tool_call>{"name": "look", "arguments": {"at": 1}}</tool_call>'
    assert written(call, None) == {"role": "assistant", "content": text}
    [first, second], verdict = played(counts, [call, Message("assistant", "2")])
    assert (first.messages, second.done) == ([Message("user", "Two?")], True)
    assert verdict.evidence["said"] == [text, "2"]
