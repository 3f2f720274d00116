"""`tools`: tasks from a file of prompts whose tools an MCP server runs, without code, or functions of the user's.

The server's state is that of one episode: each episode that calls something has a server of its own, unless the server says of
each of its tools that calls change nothing; such a server is shared by the episodes that run at the same time.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

from clawpipe.core.basics.json_types import JsonObject, Row
from clawpipe.core.basics.schemas import argument_error
from clawpipe.core.conversation.messages import Message, ToolCall, ToolSpec
from clawpipe.data.wire.arguments import arguments_of
from clawpipe.errors import ConfigError
from clawpipe.play.environments.base import Outcome, Reason, TaskItem, Verdict
from clawpipe.play.environments.local_tools import FunctionServer, is_tool_file
from clawpipe.play.environments.mcp_server import McpServer
from clawpipe.play.environments.prompts import PromptsEnvironment


class ToolsEnvironment(PromptsEnvironment):
    """A question, calls of an MCP server's tools, and a reply that is checked against the answer in the file.

    Args:
        file: JSON Lines, see `clawpipe.play.environments.prompts.PromptLine`.
        server: command line that starts an MCP server, the URL of a running one, or a JSON file of tools that are functions, see
            `clawpipe.play.environments.local_tools`.
        check: as for `prompts`; `tool_call` compares all calls of an episode with the answer; `state` compares what calls of the
            answer return on the episode's server when the episode ends.
        system: system message before every prompt; "": none.
        share: of the identities that are held out, in (0, 1).
        timeout_s: seconds that a call may take.
        max_characters: longest text of a result; the rest is cut off.
        examples: as for `prompts`; with calls and results, they show the policy how the tools are used.
    """

    name = "tools"
    kind = "tool-call"
    runs_tools = True

    def __init__(
        self,
        file: str,
        server: str,
        check: str = "exact",
        system: str = "",
        share: float = 0.3,
        timeout_s: float = 30.0,
        max_characters: int = 8192,
        examples: str = "",
    ) -> None:
        super().__init__(file, check, system, share=share, examples=examples)
        if server.startswith("http") and any(json.loads(item.truth)["check"] == "state" for item in self.every_item()):
            what = "the state of a running server cannot be asked: its calls would be repeated on it"
            raise ConfigError(what, "environment.options.server", "give the command that starts a server")
        if timeout_s <= 0 or max_characters <= 0:
            raise ConfigError("timeout_s and max_characters are above 0", "environment.options")
        self._connect = partial(connected, server, timeout_s, max_characters)
        self._offer = partial(_offer, server)
        self._shared = Running(self._connect)

    def tools(self) -> list[ToolSpec]:
        """Return the server's tools."""
        return list(self._offer().tools)

    def start(self, item: TaskItem) -> ToolsEpisode:
        """Begin an episode, which ends with a reply that calls nothing."""
        offer = self._offer()
        truth: Row = json.loads(item.truth)
        asked = _calls_of(truth["answer"]) if truth["check"] == "state" else []
        return ToolsEpisode(self._shared if offer.only_reads else Running(self._connect), offer.tools, asked)

    def verify(self, item: TaskItem, messages: Sequence[Message], verdict: Verdict | None = None) -> Outcome:
        """Return whether the check accepts the last message, with the calls of the whole episode; the value is 1 or 0.

        An episode that ended without an answer has failed, unless its calls or what they did are what is checked. A state is what
        the verdict recorded; of an episode that was recorded without one, what a server says on which its calls are repeated.

        Raises:
            ValueError: repeated calls return something else than they did, so that nothing can be said about their state.
        """
        truth: Row = json.loads(item.truth)
        if truth["check"] == "state":
            state = verdict.evidence["state"] if verdict else self._state(truth["answer"], messages)
            return super().verify(item, [Message("assistant", json.dumps(state))])
        last = messages[-1]
        if last.role != "assistant" and truth["check"] != "tool_call":
            return Outcome(0.0, False, "no answer", truth)
        calls = tuple(call for message in messages for call in message.tool_calls)
        return super().verify(item, [Message("assistant", last.content, calls)])

    def _state(self, answer: Any, messages: Sequence[Message]) -> list[str]:
        """Return the results of the answer's calls on a new server, on which the episode's calls have been repeated."""
        episode = ToolsEpisode(Running(self._connect), self._offer().tools, _calls_of(answer))
        try:
            for call, result in _made(messages):
                if (now := episode.result(call)) != result:
                    raise ValueError(f"{call.name} returned {result[:80]!r} and, repeated, {now[:80]!r}: its state cannot be known")
            return episode.state()
        finally:
            episode.close()


def _calls_of(answer: Any) -> list[ToolCall]:
    """Return the calls of the answer of an item that is checked by its state."""
    asked: list[JsonObject] = answer if isinstance(answer, list) else [answer]
    return [ToolCall("", call["name"], json.dumps(call.get("arguments") or {})) for call in asked]


def _made(messages: Sequence[Message]) -> Iterator[tuple[ToolCall, str]]:
    """Yield the calls of an episode that were run, each with its result."""
    waiting: list[ToolCall] = []
    for message in messages:
        if message.role == "assistant":
            waiting = list(message.tool_calls)
        elif message.role == "tool" and waiting:
            yield waiting.pop(0), message.content


def connected(server: str, timeout_s: float, max_characters: int) -> McpServer | FunctionServer:
    """Return what runs tools: a connection to an MCP server, or a process with the functions of a JSON file. Raises as these."""
    if is_tool_file(server):
        return FunctionServer(Path(server).expanduser(), timeout_s, max_characters)
    return McpServer(server, timeout_s, max_characters)


class Offer(NamedTuple):
    """What a server offers: its tools, and whether calls of none change anything."""

    tools: tuple[ToolSpec, ...]
    only_reads: bool


@cache
def _offer(server: str) -> Offer:
    """Ask a server for its tools, once in a process."""
    connection = connected(server, 1.0, 1)
    connection.close()
    return Offer(tuple(connection.tools), connection.only_reads)


class Running:
    """A server that runs from the first call on until as many episodes have ended as have begun; one that ends is started again.

    Episodes may use it from threads of their own.
    """

    def __init__(self, connect: Callable[[], McpServer | FunctionServer]) -> None:
        self._connect = connect
        self._server: McpServer | FunctionServer | None = None
        self._episodes = 0
        self._lock = threading.Lock()

    def begin(self) -> None:
        with self._lock:
            self._episodes += 1

    def call(self, name: str, arguments: JsonObject) -> str:
        return self._started().call(name, arguments)

    def end(self) -> None:
        with self._lock:
            self._episodes -= 1
            if self._episodes == 0:
                self._stop()

    def _started(self) -> McpServer | FunctionServer:
        with self._lock:  # so that episodes that begin together start one server
            if self._server is not None and self._server.has_ended:
                self._stop()
            self._server = self._server or self._connect()
            return self._server

    def _stop(self) -> None:
        server, self._server = self._server, None
        if server is not None:
            server.close()


class ToolsEpisode:
    """Runs what the policy calls, one call after the other, until it calls nothing.

    Args:
        asked: calls that say in which state the server is when the episode ends; none: it is not asked.
    """

    def __init__(self, server: Running, tools: Sequence[ToolSpec], asked: Sequence[ToolCall] = ()) -> None:
        self._server, self._asked = server, asked
        self._server.begin()
        self._tools = {tool.name: tool for tool in tools}

    def respond(self, messages: Sequence[Message]) -> list[Message] | None:
        calls = messages[-1].tool_calls
        return [Message("tool", self.result(call), tool_call_id=call.id, name=call.name) for call in calls] or None

    def finish(self, reason: Reason) -> Verdict | None:
        """Ask the server for its state while it still runs; the policy sees neither calls nor results."""
        return Verdict({"state": self.state()}) if self._asked else None

    def close(self) -> None:
        self._server.end()

    def state(self) -> list[str]:
        """Return what the calls that ask for the state return now."""
        return [self.result(call) for call in self._asked]

    def result(self, call: ToolCall) -> str:
        """Return a call's result, or why there is none."""
        if call.malformed:
            return "error: malformed call"
        if call.name not in self._tools:
            return f"error: unknown tool {call.name}"
        arguments = arguments_of(call)
        wrong = argument_error(self._tools[call.name].parameters, arguments)
        if wrong:
            return f"error: {wrong}"
        return self._server.call(call.name, arguments).encode(errors="replace").decode()  # half a surrogate pair: not stored
