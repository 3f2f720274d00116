"""Errors in OpenAI's form."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails
from starlette.exceptions import HTTPException

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.core.services.requests import ENCODINGS, EncodingError
from clawpipe.data.wire.dialects.fields import WrongRequestError
from clawpipe.data.wire.dialects.input_items import page_of
from clawpipe.data.wire.dialects.messages_out import messages_error
from clawpipe.errors import BusyError, ClawpipeError

RETRY_AFTER_SECONDS = 5
STOPPING = "server_stopping"
_MESSAGES = "/v1/messages"
_TYPES = {401: "authentication_error", 429: "rate_limit_error"}
Request = TypeVar("Request", bound=BaseModel)
_BRANCHES = ("str", "list[int]")  # alternatives of a field, which are no part of its name
_CODES = {"extra_forbidden": "unsupported_parameter", "missing": "missing_required_parameter"}


class ApiError(Exception):
    """A refused request.

    Args:
        status: HTTP status.
        message: what is wrong.
        param: the field that is wrong.
        code: OpenAI's short name for the error.
        headers: headers of the response.
    """

    def __init__(
        self, status: int, message: str, param: str | None = None, code: str | None = None, headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(message)
        self.status, self.message, self.param, self.code, self.headers = status, message, param, code, headers

    @classmethod
    def of(cls, error: ClawpipeError) -> ApiError:
        """Convert a clawpipe error: a full queue gives 429, everything else is the request's fault and gives 400."""
        if isinstance(error, BusyError):
            return cls(429, error.what, code="server_busy", headers={"retry-after": str(RETRY_AFTER_SECONDS)})
        return cls(400, error.what, error.where or None, "invalid_value")

    def body(self) -> JsonObject:
        kind = _TYPES.get(self.status, "server_error" if self.status >= 500 else "invalid_request_error")
        return {"error": {"message": self.message, "type": kind, "param": self.param, "code": self.code}}


def wrong_request(error: WrongRequestError) -> ApiError:
    """Return the error of a request that breaks the rules of its dialect."""
    return ApiError(400, str(error), error.where, "invalid_value")


def api_error(error: Exception) -> ApiError:
    """Return the error that a client gets of one that was raised."""
    match error:
        case ApiError():
            return error
        case ClawpipeError():
            return ApiError.of(error)
        case HTTPException():
            return ApiError(error.status_code, str(error.detail), headers=error.headers)
        case _:
            return ApiError(500, "the server failed; see its log")


def error_body(path: str, error: ApiError) -> JsonObject:
    """Return an error in the form of the interface to which a path belongs."""
    return messages_error(error.status, error.message) if path.startswith(_MESSAGES) else error.body()


def reason_of(body: JsonObject) -> str | None:
    """Return what an engine's error says, in OpenAI's form, vLLM's older one or a web framework's; None if it says nothing."""
    error = body.get("error")
    said = error.get("message") if isinstance(error, dict) else error
    return next((one for one in (said, body.get("message"), body.get("detail")) if isinstance(one, str) and one.strip()), None)


def not_kept(response_id: str) -> ApiError:
    """Return the error of a response that is not kept, or not any more."""
    return ApiError(404, f"no response {response_id[:200]!r} is kept here", "response_id", "not_found")


def input_page(items: list[JsonObject] | None, response_id: str, query: str) -> JsonObject:
    """Return the page that a query asks for of what a response was asked with. Raises ApiError: 404, it is not kept; 400."""
    if items is None:
        raise not_kept(response_id)
    try:
        return page_of(items, query)
    except WrongRequestError as error:
        raise wrong_request(error) from None


def not_cancellable(response_id: str) -> ApiError:
    """Return the error of a response that is kept, and is over: none runs in the background."""
    return ApiError(
        400, f"the response {response_id[:200]!r} is over; none runs in the background", "response_id", "not_cancellable"
    )


def failed_error() -> ApiError:
    return ApiError(500, "the server failed while it generated")


def cancelled_error() -> ApiError:
    """Return the error of a cancelled turn, which a client reads only if the server is stopping."""
    return ApiError(503, "the server stops", code=STOPPING, headers={"retry-after": str(RETRY_AFTER_SECONDS)})


def unreadable(error: EncodingError) -> ApiError:
    """Return the error of a body that cannot be read; the connection is closed, since the rest of the body is not read."""
    code = {413: "request_too_large", 415: "unsupported_encoding"}.get(error.status, "invalid_encoding")
    accepted = {"accept-encoding": ", ".join(ENCODINGS)} if error.status == 415 else {}
    return ApiError(error.status, error.what, code=code, headers={"connection": "close", **accepted})


def parsed(kind: type[Request], body: bytes) -> Request:
    """Parse a request. Raises ApiError (400) if it is no JSON, or a field is wrong or not supported."""
    try:
        return kind.model_validate_json(body)
    except ValidationError as error:
        raise _api_error(error.errors(include_url=False, include_input=False)[0]) from None


def _api_error(error: ErrorDetails) -> ApiError:
    """Convert pydantic's first error, with the field's name as the sender wrote it."""
    if error["type"] == "json_invalid":
        return ApiError(400, f"the body is no JSON: {error['msg'].removeprefix('Invalid JSON: ')}", code="invalid_json")
    parts = [part for part in error["loc"] if part not in _BRANCHES]
    field = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in parts).lstrip(".")
    where = f"{field}: " if field else ""
    reason = error["msg"].removeprefix("Value error, ")
    return ApiError(400, where + reason, field or None, _CODES.get(error["type"], "invalid_value"))
