"""What of an engine's replies, beside its answers, the client gets: some headers, and errors in OpenAI's form without secrets.

What was refused to the gateway is not the client's fault: the engine's 401 and 403 are 502 in the gateway's own words. Of an error
that holds the engine's key, in whatever form, the client gets the status alone.
"""

from __future__ import annotations

import aiohttp

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.core.services.requests import ANTHROPIC_ID, REQUEST_ID
from clawpipe.serve.gateway.events import loaded
from clawpipe.serve.gateway.exchange import Exchange
from clawpipe.serve.gateway.secret import Secret
from clawpipe.serve.gateway.upstream import Reply, unavailable
from clawpipe.serve.serving.errors import ApiError, error_body, reason_of

# Headers of `clawpipe serve`, those by which clients pace themselves, and the id by which a hosted service finds a request.
IDENTITY = ("x-clawpipe-model-version", "x-clawpipe-digest", "x-clawpipe-policy-version")
CONSTRAINED = "x-clawpipe-constrained"  # `clawpipe serve` says which field of a request holds its answer to a grammar
_IDS = (REQUEST_ID, ANTHROPIC_ID)
_PASSED_ON = ("content-type", "retry-after", "retry-after-ms", "openai-processing-ms", *_IDS, CONSTRAINED, *IDENTITY)
_PACE = ("x-ratelimit-", "anthropic-ratelimit-")
# Headers of the client that the engine gets: what an API or a router in between is told by header, and traces.
_SENT_ON = ("http-referer", "x-title", "traceparent", "tracestate", "x-request-id")
_APIS = ("openai-", "anthropic-")


def sent_on(headers: dict[str, str]) -> dict[str, str]:
    """Return the headers of a client's request that the engine gets, too."""
    return {name: value for name, value in headers.items() if name in _SENT_ON or name.startswith(_APIS)}


def passed_on(reply: Reply, secret: Secret) -> dict[str, str]:
    """Return the headers of the engine's reply that the client gets."""
    named = {name.lower(): value for name, value in reply.headers.items()}
    kept = {name: value for name, value in named.items() if name in _PASSED_ON or name.startswith(_PACE)}
    return {name: value for name, value in kept.items() if not secret.is_in(value)}


def hidden_error() -> ApiError:
    """Return the error that takes the place of one that holds the engine's key."""
    return ApiError(502, "the engine failed, and what it says of it is not for clients", code="upstream_failed")


async def pass_error(exchange: Exchange, reply: Reply, secret: Secret) -> None:
    """Pass an error of the engine on, in OpenAI's form if it has another. Raises ApiError (503) if the engine breaks off."""
    try:
        data = await reply.read()
    except (aiohttp.ClientError, TimeoutError) as error:
        raise unavailable(error) from None
    headers = {name: value for name, value in passed_on(reply, secret).items() if name != "content-type"}
    if reply.status in (401, 403):
        await exchange.refuse(ApiError(502, "the engine refuses the gateway's key", code="upstream_refused", headers=headers))
        return
    status, body = reply.status if reply.status >= 400 else 502, loaded(data)
    said = body if isinstance(body, dict) and not secret.is_in(data.decode("utf-8", "replace")) else {}
    if isinstance(said.get("error"), dict):
        await exchange.respond_json(_in_form_of(exchange.path, status, said), status, headers)
    else:
        await exchange.refuse(ApiError(status, reason_of(said) or f"the engine answered with {reply.status}", headers=headers))


def _in_form_of(path: str, status: int, body: JsonObject) -> JsonObject:
    """Return an engine's error in the form of the interface that was asked."""
    if body.get("type") == "error":
        return body
    told = error_body(path, ApiError(status, reason_of(body) or f"the engine answered with {status}"))
    return told if "type" in told else body
