"""Describe the connection of an agent to a gateway, and check it with one request."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import httpx

from clawpipe.data.wire.dialects.models import window_of
from clawpipe.errors import BusyError, ClawpipeError, ConfigError

KEY_VARIABLE = "CLAWPIPE_API_KEY"
_SIGN = "x-clawpipe-captured"  # a header of every whole chat completion that has passed a gateway
_PATIENCE = httpx.Timeout(300, connect=5)  # seconds; an engine may load its model for the first request
_LATER = (429, 502, 503, 504)


@dataclass(frozen=True)
class Connection:
    """The settings that an agent needs to reach a gateway.

    Args:
        url: the gateway's base URL, with `/v1`, without a slash at its end.
        model: the name by which the agent asks for the model.
        key: the agent's key.
        context: tokens of the model's window; None if the engine does not say.
    """

    url: str
    model: str
    key: str
    context: int | None = None


def base_url(given: str) -> str:
    """Return a base URL without a slash at its end.

    Raises:
        ConfigError: it is no http(s) URL, or holds a password or a query.
    """
    if not _is_plain_url(given) or not given.isprintable() or " " in given:
        raise ConfigError("not the base URL of a gateway", "--url", "write one like http://127.0.0.1:8100/v1, without a key in it")
    return given.rstrip("/")


def _is_plain_url(given: str) -> bool:
    try:
        parts = urlsplit(given)
        good = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:  # a port that is no number
        return False
    return bool(good) and not ("@" in parts.netloc or parts.query or parts.fragment)


def check_connection(url: str, model: str | None, key: str) -> Connection:
    """Check that a gateway answers a chat completion, by one short request that it does not capture; return the connection.

    Args:
        url: the gateway's base URL, as `base_url` returns it.
        model: the model's name; None takes the only model that the engine lists.
        key: the agent's key.

    Raises:
        BusyError: no server answers at the URL, or it is overloaded.
        ConfigError: the server is no gateway, it refuses the key or the model, or `model` is None and it lists no or several
            models.
    """
    listed = _models(_asked("GET", url, "/models", key))
    name = model or _only(list(listed))
    body = {"model": name, "messages": [{"role": "user", "content": "Say ok."}], "max_completion_tokens": 16}
    reply = _asked("POST", url, "/chat/completions", key, json=body)
    if _SIGN not in reply.headers:
        fix = "give the address that `clawpipe gateway --upstream URL` prints"
        raise ConfigError("what answers is no gateway, so nothing would be captured", url, fix)
    return Connection(url, name, key, listed.get(name))


def _asked(method: str, url: str, path: str, key: str, **more: Any) -> httpx.Response:
    headers = {"authorization": f"Bearer {key}", "x-clawpipe-capture": "off"}
    try:
        reply = httpx.request(method, url + path, headers=headers, timeout=_PATIENCE, **more)
    except httpx.InvalidURL:
        raise ConfigError("not a URL", "--url", "write one like http://127.0.0.1:8100/v1") from None
    except httpx.TransportError as error:
        fix = "`clawpipe gateway --upstream URL` starts a gateway; --url says where it is"
        raise BusyError(f"no gateway answers: {type(error).__name__}", url, fix) from None
    if not reply.is_success:
        raise _refusal(reply, url + path)
    return reply


def _refusal(reply: httpx.Response, where: str) -> ClawpipeError:
    status, message = reply.status_code, _message(reply)
    if status == 401:
        fix = f"set {KEY_VARIABLE} to a key of that gateway; `clawpipe keys make NAME` makes one"
        return ConfigError(f"the key is refused: {message}", where, fix)
    if status in _LATER:
        return BusyError(f"no answer now: HTTP {status}: {message}", where, "try again once the engine answers")
    return ConfigError(f"the request is refused: HTTP {status}: {message}", where, "check --url and --model")


def _message(reply: httpx.Response) -> str:
    try:
        return str(reply.json()["error"]["message"])[:500]
    except (ValueError, LookupError, TypeError):
        return "without a message"


def _models(reply: httpx.Response) -> dict[str, int | None]:
    """Return the window of each listed model by its id; None where the engine does not say it. An adapter has that of its base."""
    try:
        rows = [row for row in reply.json()["data"] if isinstance(row["id"], str)]
    except (ValueError, LookupError, TypeError):
        return {}
    windows = {row["id"]: window_of(row) for row in rows}
    return {row["id"]: windows[row["id"]] or windows.get(str(row.get("parent"))) for row in rows}


def _only(listed: list[str]) -> str:
    if len(listed) == 1:
        return listed[0]
    what = f"the engine lists {len(listed)} models" if listed else "the engine lists no models"
    raise ConfigError(f"{what}, so the agent's has to be named", "--model", f"one of {', '.join(listed[:10])}" if listed else "")
