"""One request to the gateway: its headers and body, and how it is answered. No framework, because every request pays for it."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping
from typing import Any

import orjson
from starlette.types import Receive, Scope, Send

from clawpipe.gateway.events import is_too_deep
from clawpipe.json_types import JsonObject
from clawpipe.serving.errors import ApiError, error_body

MAX_BODY = 16 << 20  # bytes of a request; images travel in it
BODY_SECONDS = 30.0


class Exchange:
    """A request and its response.

    Attributes:
        query: of the address, with its question mark; empty if there is none.
        headers: of the request, by lower-case name; the last of several with one name.
        status: of the response, 0 before it begins.
    """

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.method: str = scope["method"]
        self.path: str = scope["path"]
        self.query = f"?{given.decode('latin-1')}" if (given := scope.get("query_string")) else ""
        self.headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        self.status = 0
        self._receive, self._send = receive, send

    async def body(self) -> bytes:
        """Read the body, counting bytes as they come, since a client's stated length proves nothing.

        Raises:
            ApiError: 413, it is too large; 408, it takes too long.
        """
        body, close = bytearray(), {"connection": "close"}
        try:
            async with asyncio.timeout(BODY_SECONDS):
                more = True
                while more:
                    message = await self._receive()
                    body += message.get("body", b"")
                    more = message.get("more_body", False)
                    if len(body) > MAX_BODY:
                        raise ApiError(413, f"the request is larger than {MAX_BODY} bytes", code="request_too_large", headers=close)
        except TimeoutError:
            raise ApiError(408, f"the request took more than {BODY_SECONDS:.0f} s to arrive", headers=close) from None
        return bytes(body)

    async def json(self) -> JsonObject:
        """Read the body as a JSON object.

        Raises:
            ApiError: 400, it is none, or is nested too deep; 408 and 413 as for `body`.
        """
        data = await self.body()
        try:
            body = orjson.loads(data)
        except orjson.JSONDecodeError as error:
            raise ApiError(400, f"the body is no JSON: {error.msg}", code="invalid_json") from None
        if is_too_deep(data, body):
            raise ApiError(400, "the body's objects and lists are nested too deep", code="invalid_json")
        if not isinstance(body, dict):
            raise ApiError(400, "the body is no JSON object", code="invalid_json")
        return body

    async def start(self, status: int, headers: Mapping[str, str]) -> None:
        """Begin the response."""
        self.status = status
        listed = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]
        await self._send({"type": "http.response.start", "status": status, "headers": listed})

    async def send(self, data: bytes, more: bool = True) -> None:
        """Send a part of the body."""
        await self._send({"type": "http.response.body", "body": data, "more_body": more})

    async def respond(self, status: int, data: bytes, headers: Mapping[str, str]) -> None:
        """Send a whole response."""
        await self.start(status, {**headers, "content-length": str(len(data))})
        await self.send(data, more=False)

    async def respond_json(self, body: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> None:
        await self.respond(status, orjson.dumps(body), {**(headers or {}), "content-type": "application/json"})

    async def refuse(self, error: ApiError) -> None:
        """Answer with an error, in the form of the interface that was asked."""
        await self.respond_json(error_body(self.path, error), error.status, error.headers)

    async def while_connected(self, work: Coroutine[Any, Any, None]) -> bool:
        """Do work until it ends, or the client goes away, which cancels it. Returns whether it ended. The body must be read."""
        task, gone = asyncio.ensure_future(work), asyncio.ensure_future(self._until_gone())
        try:
            await asyncio.wait((task, gone), return_when=asyncio.FIRST_COMPLETED)
        finally:
            gone.cancel()
            ended = task.done()
            if not ended:
                task.cancel()
            await asyncio.wait((task,))
        if not task.cancelled():
            task.result()
        return ended

    async def _until_gone(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
