"""What a client is told when a request fails: an HTTP status and an error object in OpenAI's form."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastapi.responses import JSONResponse

from clawpipe.errors import BusyError, ClawpipeError

RETRY_AFTER_SECONDS = 5
_TYPES = {401: "authentication_error", 429: "rate_limit_error", 500: "server_error", 503: "server_error"}


class ApiError(Exception):
    """A request that is refused.

    Args:
        status: HTTP status.
        message: what is wrong.
        param: the field that it is about.
        code: OpenAI's short name for it.
        headers: of the response.
    """

    def __init__(
        self, status: int, message: str, param: str | None = None, code: str | None = None, headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(message)
        self.status, self.message, self.param, self.code, self.headers = status, message, param, code, headers

    @classmethod
    def of(cls, error: ClawpipeError) -> ApiError:
        """Our own errors: a full queue is for later, everything else is in the request."""
        if isinstance(error, BusyError):
            return cls(429, error.what, code="server_busy", headers={"retry-after": str(RETRY_AFTER_SECONDS)})
        return cls(400, error.what, error.where or None, "invalid_value")

    def body(self) -> dict[str, Any]:
        kind = _TYPES.get(self.status, "invalid_request_error")
        return {"error": {"message": self.message, "type": kind, "param": self.param, "code": self.code}}

    def response(self) -> JSONResponse:
        return JSONResponse(self.body(), self.status, self.headers)


def given_up() -> ApiError:
    """A turn that was cancelled. A client that went away does not read it; one of a server that stops does."""
    return ApiError(503, "the server stops", code="server_stopping", headers={"retry-after": str(RETRY_AFTER_SECONDS)})
