"""A model at endpoints that speak OpenAI's chat completions: text and tool calls come back, no tokens are recorded."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Self

from clawpipe.config.engine import KEYS, EngineSpec
from clawpipe.engines.servers import Servers
from clawpipe.errors import ConfigError
from clawpipe.importers.message import read_message, write_chat
from clawpipe.importers.strict_json import RefusedError
from clawpipe.json_types import JsonObject
from clawpipe.messages import Message, ToolSpec

_SEEDS = 2**31  # endpoints refuse larger ones


class Reply(NamedTuple):
    """A reply, why it ended, and the tokens of the request and of the reply; 0 where the endpoint does not count."""

    message: Message
    finish_reason: str
    prompt_tokens: int
    reply_tokens: int


@dataclass(frozen=True)
class ChatModel:
    """A model at endpoints. Close it when done; rollouts, `env test` and `batch` ask through it.

    Attributes:
        servers: URLs up to and with /v1.
        temperature, max_tokens: of one reply.
    """

    servers: Servers
    model: str
    temperature: float
    max_tokens: int

    @classmethod
    def at(cls, server: EngineSpec, temperature: float, max_tokens: int) -> Self:
        """Return the model that settings name; the key comes from the environment."""
        key = os.environ.get(KEYS["openai"], "")
        servers = Servers(server.url, key, KEYS["openai"], server.timeout, concurrency=server.concurrency)
        return cls(servers, server.model or "", temperature, max_tokens)

    def reply(self, messages: Sequence[Message], tools: Sequence[ToolSpec], seed: int | None = None) -> tuple[Message, str]:
        """Return the model's reply, and why it ended. Errors as for `ask`."""
        return self.ask(messages, tools, seed)[:2]

    def ask(self, messages: Sequence[Message], tools: Sequence[ToolSpec] = (), seed: int | None = None) -> Reply:
        """Return the model's reply.

        Raises:
            ConfigError: the endpoint refuses the request, or it is no chat completions endpoint.
            BusyError: it does not answer, or is overloaded, after all tries.
        """
        body: JsonObject = {"model": self.model, "messages": write_chat(messages)}
        body |= {"temperature": self.temperature, "max_tokens": self.max_tokens}
        body |= {"tools": functions(tools)} if tools else {}
        body |= {"seed": seed % _SEEDS} if seed is not None else {}
        answer = self.servers.post("/chat/completions", body)
        try:
            given = answer.json()
            choice, usage = given["choices"][0], given.get("usage") or {}
            counts = (int(usage.get(name) or 0) for name in ("prompt_tokens", "completion_tokens"))
            return Reply(read_message(choice["message"], len(messages)), str(choice.get("finish_reason") or ""), *counts)
        except (ValueError, KeyError, IndexError, TypeError, RefusedError) as error:
            what = f"the answer is no chat completion: {answer.text[:200]!r}"
            raise ConfigError(what, str(answer.url), "name the URL up to /v1 of an OpenAI-compatible server") from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.servers.close()


def functions(tools: Sequence[ToolSpec]) -> list[JsonObject]:
    """Return tools as chat completions take them."""
    return [tool.as_function() for tool in tools]
