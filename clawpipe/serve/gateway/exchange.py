"""One request to the gateway: its headers and body, and how it is answered. No framework, because every request pays for it."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping
from typing import Any

import orjson
from starlette.types import Receive, Scope, Send

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.core.services.requests import ANTHROPIC_ID, REQUEST_ID, Body, EncodingError, id_headers, request_id
from clawpipe.serve.gateway.events import is_too_deep
from clawpipe.serve.serving.errors import ApiError, error_body, unreadable

MAX_BODY = 16 << 20  # bytes of a request; images travel in it
BODY_SECONDS = 30.0


class Exchange:
    """A request and its response.

    Attributes:
        method: GET for HEAD as well, whose answer has no body.
        id: of the request: the client's own, else a new one. The engine gets it, too; without a client's own, its answer's id is
            passed on.
        query: of the address, with its question mark; empty if there is none.
        headers: of the request, by lower-case name; the last of several with one name.
        status: of the response, 0 before it begins.
    """

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.is_head = scope["method"] == "HEAD"
        self.method: str = "GET" if self.is_head else scope["method"]
        self.path: str = scope["path"]
        self.query = f"?{given.decode('latin-1')}" if (given := scope.get("query_string")) else ""
        self.headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        self._own_id = self.headers.get(REQUEST_ID)
        self.id = self.headers[REQUEST_ID] = request_id(self._own_id)
        self.status = 0
        self._receive, self._send = receive, send

    async def body(self) -> bytes:
        """Read the body, decompressed, counting bytes as they come, since a client's stated length proves nothing.

        Raises:
            ApiError: 413, it is too large; 408, it takes too long; 400 or 415, it is compressed in a way that is not read here.
        """
        try:
            body = Body(self.headers.get("content-encoding", ""), MAX_BODY)
            async with asyncio.timeout(BODY_SECONDS):
                more = True
                while more:
                    message = await self._receive()
                    body.add(message.get("body", b""))
                    more = message.get("more_body", False)
            return body.whole()
        except EncodingError as error:
            raise unreadable(error) from None
        except TimeoutError:
            what = f"the request took more than {BODY_SECONDS:.0f} s to arrive"
            raise ApiError(408, what, headers={"connection": "close"}) from None

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
        told = headers.get(REQUEST_ID) or headers.get(ANTHROPIC_ID) or self.id
        named = {**headers, **id_headers(self.path, self.id if self.id == self._own_id else told)}
        # As aiohttp has decoded those of the engine, which may hold any bytes.
        listed = [(name.encode(), value.encode("utf-8", "surrogateescape")) for name, value in named.items()]
        await self._send({"type": "http.response.start", "status": status, "headers": listed})

    async def send(self, data: bytes, more: bool = True) -> None:
        """Send a part of the body."""
        await self._send({"type": "http.response.body", "body": b"" if self.is_head else data, "more_body": more})

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
