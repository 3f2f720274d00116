"""A model at OpenAI-compatible endpoints, which return text and tool calls, and some of them token ids."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Self

import httpx

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.core.config.engine import KEYS, EngineSpec
from clawpipe.core.contracts.logprobs import Kind, kind_by_temperatures
from clawpipe.core.contracts.sampled import SampledTurn, version_of
from clawpipe.core.conversation.messages import Message, ToolSpec
from clawpipe.data.importers.formats.chat import read_chat
from clawpipe.data.importers.message import read_message, write_chat
from clawpipe.data.importers.strict_json import RefusedError
from clawpipe.errors import ConfigError
from clawpipe.model.engines.servers import Servers, told

_SEEDS = 2**31  # endpoints refuse larger ones
_POLICY = "x-clawpipe-policy-version"  # header of `clawpipe serve`, and of a gateway that follows an alias
_TOKENS: JsonObject = {"return_token_ids": True, "logprobs": True}
# A ratio needs log-probs over the whole vocabulary, whatever the server's defaults are.
_WHOLE: JsonObject = {"top_p": 1.0, "top_k": -1, "min_p": 0.0, "repetition_penalty": 1.0}
_FIX = "leave rollouts.engine.tokens out, or ask vLLM, clawpipe serve or clawpipe gateway"
_TOP = 5


class SampledReply(NamedTuple):
    """The tokens of a reply, the policy version that sampled it, and the kind of its log-probs, where the endpoint says it."""

    turn: SampledTurn
    policy: str
    kind: Kind


class Reply(NamedTuple):
    """A reply, why it ended, the numbers of tokens of the request and of the reply (0 where the endpoint does not count), and its
    tokens, where the model was asked for them."""

    message: Message
    finish_reason: str
    prompt_tokens: int
    reply_tokens: int
    sampled: SampledReply | None = None


@dataclass(frozen=True)
class ChatModel:
    """A model at endpoints. Close it when done; rollouts, `env test` and `batch` ask through it.

    Attributes:
        servers: URLs up to and with /v1.
        temperature, max_tokens: of one reply.
        tokens: whether it is asked for token ids and log-probs.
    """

    servers: Servers
    model: str
    temperature: float
    max_tokens: int
    tokens: bool = False

    @classmethod
    def at(cls, server: EngineSpec, temperature: float, max_tokens: int, variable: str = KEYS["openai"]) -> Self:
        """Return the model that settings name; the key comes from an environment variable."""
        servers = Servers(server.url, os.environ.get(variable, ""), variable, server.timeout, concurrency=server.concurrency)
        return cls(servers, server.model or "", temperature, max_tokens, server.tokens)

    def reply(self, messages: Sequence[Message], tools: Sequence[ToolSpec], seed: int | None = None) -> tuple[Message, str]:
        """Return the model's reply, and why it ended. Errors as for `ask`."""
        return self.ask(messages, tools, seed)[:2]

    def ask(self, messages: Sequence[Message], tools: Sequence[ToolSpec] = (), seed: int | None = None) -> Reply:
        """Return the model's reply.

        Raises:
            ConfigError: the endpoint refuses the request, it is no chat completions endpoint, or it gives no tokens where
                it was asked for them.
            BusyError: it does not answer, or is overloaded, after all tries.
        """
        body: JsonObject = {"model": self.model, "messages": write_chat(messages)}
        body |= {"temperature": self.temperature, "max_tokens": self.max_tokens}
        body |= {"tools": functions(tools)} if tools else {}
        body |= (_TOKENS | _WHOLE) if self.tokens else {}
        body |= {"seed": seed % _SEEDS} if seed is not None else {}
        answer = self.servers.post("/chat/completions", body)
        try:
            given = answer.json()
            choice, usage = given["choices"][0], given.get("usage") or {}
            asked, answered = (int(usage.get(name) or 0) for name in ("prompt_tokens", "completion_tokens"))
            message, reason = read_message(choice["message"], len(messages)), str(choice.get("finish_reason") or "")
        except (ValueError, KeyError, IndexError, TypeError, RefusedError) as error:
            what = f"the answer is no chat completion: {told(answer, 200)!r}"
            raise ConfigError(what, str(answer.url), "name the URL up to /v1 of an OpenAI-compatible server") from error
        return Reply(message, reason, asked, answered, _sampled(answer, self.model) if self.tokens else None)

    def kind_of(self, stated: Kind) -> Kind:
        """Return the kind of log-probs that an endpoint gives: the one that it states, else the one that two requests at
        other temperatures show.

        Raises:
            ConfigError, BusyError: as for `ask`.
        """
        if stated == "tempered" or self.temperature == 1:  # at 1 both kinds are the same
            return "tempered"
        return kind_by_temperatures(self._likeliest(1.0), self._likeliest(2.0))

    def _likeliest(self, temperature: float) -> dict[str, float]:
        """Return the log-probs of the likeliest first tokens of a reply, by their text."""
        body = {"model": self.model, "messages": [{"role": "user", "content": "Say a word."}], "max_tokens": 1}
        body |= {"temperature": temperature, "logprobs": True, "top_logprobs": _TOP}
        answer = self.servers.post("/chat/completions", body)
        try:
            top = answer.json()["choices"][0]["logprobs"]["content"][0]["top_logprobs"]
            return {str(entry["token"]): float(entry["logprob"]) for entry in top}
        except (ValueError, KeyError, IndexError, TypeError) as error:
            raise ConfigError("the answer has no likeliest tokens", str(answer.url), _FIX) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.servers.close()


def _sampled(answer: httpx.Response, model: str) -> SampledReply:
    """Return the tokens of an answer; `model` is the name that was asked for.

    Raises:
        ConfigError: it has none, or what is no token id or no log-prob.
    """
    try:
        read = read_chat({"messages": [{"role": "user", "content": ""}], "response": answer.json()})[0]
    except RefusedError as error:
        raise ConfigError(str(error), str(answer.url), _FIX) from error
    found = read.tokens
    if found is None or found.logprobs is None or not any(found.mask):
        raise ConfigError("the answer has no token ids and log-probs", str(answer.url), _FIX)
    start = found.mask.index(True)
    reason = "length" if read.status == "truncated" else "stop"
    turn = SampledTurn(found.ids[:start], found.ids[start:], found.logprobs[start:], reason)
    return SampledReply(turn, version_of(answer.headers.get(_POLICY), read.model or model), found.kind)


def functions(tools: Sequence[ToolSpec]) -> list[JsonObject]:
    """Return tools as chat completions take them."""
    return [tool.as_function() for tool in tools]
