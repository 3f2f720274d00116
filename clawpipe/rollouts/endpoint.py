"""Episodes over any endpoint that speaks OpenAI's chat completions: text and tool calls come back, no tokens are recorded."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import httpx

from clawpipe.environments.base import Environment, TaskItem
from clawpipe.errors import BusyError, ConfigError
from clawpipe.importers.message import read_message, write_chat
from clawpipe.importers.strict_json import RefusedError
from clawpipe.json_types import JsonObject
from clawpipe.messages import Message, ToolSpec

_LATER = (408, 409, 425, 429, 500, 502, 503, 504)  # worth another try
_LONGEST_WAIT = 60.0  # seconds between two tries


@dataclass(frozen=True)
class Endpoint:
    """A model at an endpoint.

    Attributes:
        url: up to and with /v1.
        key: API key; "": none.
        temperature, max_tokens: of one reply.
        timeout: seconds without an answer.
        tries: of one request; the waits between them double.
    """

    url: str
    model: str
    key: str = ""
    temperature: float = 0.8
    max_tokens: int = 512
    timeout: float = 300.0
    tries: int = 5

    def reply(self, client: httpx.Client, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> tuple[Message, str]:
        """Return the model's reply, and why it ended.

        Raises:
            ConfigError: the endpoint refuses the request, or it is no chat completions endpoint.
            BusyError: it does not answer, or is overloaded, after all tries.
        """
        body: JsonObject = {"model": self.model, "messages": write_chat(messages)}
        body |= {"temperature": self.temperature, "max_tokens": self.max_tokens}
        body |= {"tools": _functions(tools)} if tools else {}
        answer = self._answered(client, body)
        try:
            choice = answer.json()["choices"][0]
            return read_message(choice["message"], len(messages)), str(choice.get("finish_reason") or "")
        except (ValueError, KeyError, IndexError, TypeError, RefusedError) as error:
            what = f"the answer is no chat completion: {answer.text[:200]!r}"
            raise ConfigError(what, self.url, "name the URL up to /v1 of an OpenAI-compatible server") from error

    def _answered(self, client: httpx.Client, body: JsonObject) -> httpx.Response:
        headers = {"Authorization": f"Bearer {self.key}"} if self.key else {}
        failed = ""
        for number in range(self.tries):
            try:
                answer = client.post(f"{self.url.rstrip('/')}/chat/completions", json=body, headers=headers, timeout=self.timeout)
                if answer.status_code not in _LATER:
                    return self._accepted(answer)
                failed, wait = f"it answers {answer.status_code}", answer.headers.get("retry-after", "")
            except httpx.TransportError as error:
                failed, wait = f"it does not answer: {type(error).__name__}", ""
            if number + 1 < self.tries:
                time.sleep(min(float(wait) if wait.isdigit() else 0.5 * 2**number, _LONGEST_WAIT))
        raise BusyError(f"{failed}, {self.tries} times", self.url, "start it, or try again later: what was answered is kept")

    def _accepted(self, answer: httpx.Response) -> httpx.Response:
        if answer.is_success:
            return answer
        what = f"it answers {answer.status_code}: {answer.text[:300]}"
        raise ConfigError(what, self.url, "check the model's name, and the key in OPENAI_API_KEY")


@dataclass(frozen=True)
class ChatEpisode:
    """An episode that has ended. `error` is what the environment raised when it verified it, "" if nothing."""

    item: TaskItem
    index: int
    messages: tuple[Message, ...]
    finish_reason: str
    success: bool | None
    value: float | None
    error: str = ""

    @property
    def malformed(self) -> bool:
        """Whether a call could not be read."""
        return any(call.malformed for message in self.messages for call in message.tool_calls)

    def as_row(self, model: str, tools: Sequence[ToolSpec]) -> JsonObject:
        """Return a line that `clawpipe ingest` reads."""
        row: JsonObject = {"session_id": f"{self.item.item_id}/{self.index}", "model": model}
        row |= {"messages": write_chat(self.messages), "finish_reason": self.finish_reason}
        row |= {"tools": _functions(tools)} if tools else {}
        return row | ({"success": self.success, "reward": self.value} if self.success is not None else {})


def chat_episodes(
    endpoint: Endpoint,
    environment: Environment,
    tasks: Sequence[tuple[TaskItem, int]],
    max_turns: int,
    concurrency: int,
    verify: bool = True,
) -> Iterator[ChatEpisode]:
    """Run an episode for each item and its number, `concurrency` at a time; yield them in order.

    Args:
        verify: whether the environment says how the episodes went.

    Raises:
        ConfigError, BusyError: see `Endpoint.reply`.
    """
    with httpx.Client(limits=httpx.Limits(max_connections=concurrency)) as client, ThreadPoolExecutor(concurrency) as threads:

        def run(task: tuple[TaskItem, int]) -> ChatEpisode:
            messages, reason = _talk(client, endpoint, environment, task[0], max_turns)
            if not verify:
                return ChatEpisode(*task, tuple(messages), reason, None, None)
            return verified(environment, *task, messages, reason)

        futures = [threads.submit(run, task) for task in tasks]
        try:
            for future in futures:
                yield future.result()
        finally:
            threads.shutdown(wait=True, cancel_futures=True)


def _talk(
    client: httpx.Client, endpoint: Endpoint, environment: Environment, item: TaskItem, max_turns: int
) -> tuple[list[Message], str]:
    preamble, messages, reason = environment.preamble(), list(item.messages), "max_turns"
    episode, tools = environment.start(item), environment.tools()
    try:
        for _ in range(max_turns):
            reply, reason = endpoint.reply(client, [*preamble, *messages], tools)
            messages.append(reply)
            answer = episode.respond(messages)
            if answer is None:
                return messages, reason
            messages += answer
        return messages, "max_turns"
    finally:
        episode.close()


def verified(environment: Environment, item: TaskItem, index: int, messages: Sequence[Message], reason: str) -> ChatEpisode:
    """Return an episode that has ended for `reason`, with what the environment says of it."""
    try:
        outcome = environment.verify(item, messages)
    except Exception as error:  # a user's environment may raise anything, and one item must not end the others
        return ChatEpisode(item, index, tuple(messages), reason, None, None, f"{type(error).__name__}: {error}")
    return ChatEpisode(item, index, tuple(messages), reason, outcome.success, outcome.value)


def _functions(tools: Sequence[ToolSpec]) -> list[JsonObject]:
    return [tool.as_function() for tool in tools]
