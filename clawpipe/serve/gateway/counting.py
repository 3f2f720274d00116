"""Count the tokens of a prompt for `/v1/messages/count_tokens`, without capturing anything.

An engine that lacks the route is asked for a chat completion of one token, whose usage says how many tokens its prompt has.
"""

from __future__ import annotations

from contextlib import nullcontext

import orjson

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.data.wire.dialects.fields import UntranslatableError, WrongRequestError
from clawpipe.data.wire.dialects.messages_in import as_sent, counted_chat
from clawpipe.serve.gateway.adapters import Following
from clawpipe.serve.gateway.asking import LACKING, unaskable
from clawpipe.serve.gateway.events import loaded
from clawpipe.serve.gateway.exchange import Exchange
from clawpipe.serve.gateway.passing import pass_error, passed_on, sent_on
from clawpipe.serve.gateway.upstream import CHAT, Reply
from clawpipe.serve.gateway.upstreams import Upstreams
from clawpipe.serve.serving.errors import ApiError, wrong_request

COUNT = "/v1/messages/count_tokens"
_OF_PROMPT = ("model", "messages", "tools")


class Counting:
    """Counts with the engines; `following` names the version that stands for the followed model."""

    def __init__(self, upstreams: Upstreams, following: Following | None) -> None:
        self._upstreams, self._following = upstreams, following

    async def answer(self, exchange: Exchange, body: JsonObject) -> None:
        """Answer with the number of tokens. Raises ApiError if the engine cannot count, or no chat can say the same."""
        model = body.get("model")
        version = self._following.of(model, "") if self._following and isinstance(model, str) else None
        with version.answering() if version else nullcontext():
            await self._answer(exchange, body | ({"model": version.model} if version else {}))

    async def _answer(self, exchange: Exchange, body: JsonObject) -> None:
        reply = await self._ask(exchange, COUNT + exchange.query, body)
        if reply.status in LACKING:
            reply.release()
            reply = await self._ask(exchange, CHAT, _one_token(body))
        async with reply:
            if reply.status != 200:
                await pass_error(exchange, reply, self._upstreams.secret)
                return
            headers = passed_on(reply, self._upstreams.secret)
            await exchange.respond_json({"input_tokens": _tokens(loaded(await reply.read()))}, headers=headers)

    async def _ask(self, exchange: Exchange, path: str, body: JsonObject) -> Reply:
        return await self._upstreams.ask("POST", path, orjson.dumps(body), sent_on(exchange.headers))


def _one_token(body: JsonObject) -> JsonObject:
    """Return a request for one token after the same prompt. Raises ApiError (400) if no chat can say it."""
    try:
        chat = as_sent(counted_chat(body))
    except WrongRequestError as error:
        raise wrong_request(error) from None
    except UntranslatableError as error:
        raise unaskable(str(error)) from None
    return {name: chat[name] for name in _OF_PROMPT if name in chat} | {"max_completion_tokens": 1}


def _tokens(answer: object) -> int:
    """Return what an engine says of a prompt's length. Raises ApiError (502) if it says nothing."""
    found = answer if isinstance(answer, dict) else {}
    usage = found.get("usage")
    for count in (found.get("input_tokens"), usage.get("prompt_tokens") if isinstance(usage, dict) else None):
        if isinstance(count, int) and not isinstance(count, bool):
            return count
    raise ApiError(502, "the engine does not say how many tokens a prompt has", code="upstream_failed")
