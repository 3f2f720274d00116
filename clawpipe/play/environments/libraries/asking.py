"""Libraries that ask a model themselves: their code runs until it asks, and goes on when the policy has answered."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.core.conversation.messages import Message, ToolCall
from clawpipe.play.environments.base import Answer, Reason, Verdict
from clawpipe.play.environments.libraries.common import text_of

T = TypeVar("T")


class Request(NamedTuple):
    """What a library asks: the whole conversation so far, in OpenAI's form, and the tools on offer."""

    messages: list[JsonObject]
    tools: list[JsonObject]


class Asked:
    """The model that a library asks. Its answers are the policy's turns."""

    def __init__(self) -> None:
        self._requests: asyncio.Queue[tuple[Request, asyncio.Future[Message]]] = asyncio.Queue()
        self._waiting: asyncio.Future[Message] | None = None

    async def ask(self, messages: Sequence[JsonObject], tools: Sequence[JsonObject] = ()) -> Message:
        """Return the policy's answer. The library's side."""
        answer = asyncio.get_running_loop().create_future()
        await self._requests.put((Request(list(messages), list(tools)), answer))
        return await answer

    async def request(self, task: asyncio.Task[Any]) -> Request | None:
        """Return what the library asks next; None if its task ends before."""
        waiting = asyncio.ensure_future(self._requests.get())
        await asyncio.wait({waiting, task}, return_when=asyncio.FIRST_COMPLETED)
        if not waiting.done():
            waiting.cancel()
            return None
        request, self._waiting = waiting.result()
        return request

    def answer(self, message: Message) -> None:
        """Answer what was asked last."""
        assert self._waiting
        self._waiting.set_result(message)


class AskingEpisode(Generic[T]):
    """One run of a library's code.

    Args:
        run: the library's code, given the model that it asks.
        expected: the messages that it has to ask first, which the policy has seen.
        judge: what is recorded of that which `run` returns.
    """

    def __init__(
        self, run: Callable[[Asked], Awaitable[T]], expected: Sequence[Message], judge: Callable[[T, Sequence[Message]], JsonObject]
    ) -> None:
        self._run, self._expected, self._judge = run, list(expected), judge
        self._asked = Asked()
        self._task: asyncio.Task[T] | None = None

    async def begin(self) -> AskingEpisode[T]:
        """Run until the library asks first.

        Raises:
            ValueError: it asks something else than the item holds, or nothing.
        """
        self._task = asyncio.ensure_future(self._awaited())
        request = await self._asked.request(self._task)
        if request is None:
            self._task.result()
            raise ValueError("it ends without asking the model")
        if read(request.messages) != self._expected:
            raise ValueError("it asks something else than when the item was made")
        return self

    async def respond(self, messages: Sequence[Message]) -> Answer:
        """Give the library the policy's turn, and run until it asks again or ends.

        Raises:
            ValueError: it has changed what was said before.
        """
        assert self._task
        self._asked.answer(messages[-1])
        request = await self._asked.request(self._task)
        if request is None:
            self._task.result()  # what it raised
            return Answer(done=True)
        conversation = read(request.messages)
        said = len(self._expected) + 1
        if _plain(conversation[:said]) != _plain([*self._expected, messages[-1]]):
            raise ValueError("it has changed what was said before, which the policy has seen")
        self._expected = conversation
        return Answer(conversation[said:])

    async def finish(self, reason: Reason) -> Verdict | None:
        """Return what is recorded of the library's result; None where it has not come to one."""
        if self._task is None or not self._task.done():
            return None
        return Verdict(self._judge(self._task.result(), self._expected))

    async def close(self) -> None:
        if self._task and not self._task.done():
            self._task.cancel()
            await asyncio.wait({self._task})

    async def _awaited(self) -> T:
        return await self._run(self._asked)


async def first_request(run: Callable[[Asked], Awaitable[Any]]) -> Request:
    """Run a library's code until it asks, and end it there.

    Raises:
        ValueError: it asks nothing. Whatever it raises itself.
    """
    asked = Asked()
    task = asyncio.ensure_future(_of(run, asked))
    try:
        request = await asked.request(task)
        if request is None:
            task.result()
            raise ValueError("it ends without asking the model")
        return request
    finally:
        task.cancel()
        await asyncio.wait({task})


async def _of(run: Callable[[Asked], Awaitable[T]], asked: Asked) -> T:
    return await run(asked)


def read(messages: Sequence[JsonObject]) -> list[Message]:
    """Return messages of OpenAI's form as ours."""
    return [_read(message) for message in messages]


def _read(message: JsonObject) -> Message:
    calls = tuple(
        ToolCall(call["id"], call["function"]["name"], call["function"]["arguments"]) for call in message.get("tool_calls") or ()
    )
    content = message.get("content")
    if isinstance(content, list):
        content = "\n".join(part["text"] for part in content if part.get("type") == "text")
    return Message(message["role"], content or "", calls, message.get("tool_call_id"), message.get("name"))


def _plain(messages: Sequence[Message]) -> list[tuple[str, str]]:
    """Return what of messages a library has to leave as it was: it may drop ids and names, and have been told calls as text."""
    return [(one.role, text_of(one).strip()) for one in messages]


def written(message: Message, tools: Sequence[JsonObject] | None) -> JsonObject:
    """Return a turn of the policy in OpenAI's form; who offers no tools reads calls in the text, as a server would leave them."""
    if not tools:
        return {"role": "assistant", "content": text_of(message)}
    calls = [
        {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
        for call in message.tool_calls
    ]
    return {"role": "assistant", "content": message.content} | ({"tool_calls": calls} if calls else {})
