"""Each error of Tinker's library is one of clawpipe's, in one line."""

from __future__ import annotations

from concurrent.futures import TimeoutError as FutureTimeoutError

import httpx
import pytest

from clawpipe.errors import BusyError, ClawpipeError, ConfigError, DataError, TrainingError

tinker = pytest.importorskip("tinker")
pytestmark = pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")  # the library leaves its first connection open


def _response(status: int) -> httpx.Response:
    return httpx.Response(status, request=httpx.Request("POST", "http://127.0.0.1/x"))


def _of_status(kind: str, status: int) -> Exception:
    return getattr(tinker, kind)("no", response=_response(status), body=None)


def _caused(outer: Exception, inner: Exception) -> Exception:
    outer.__cause__ = inner
    return outer


def _failed(category: str) -> Exception:
    return tinker.RequestFailedError("broken", "r", tinker.types.RequestErrorCategory(category))


CASES: list[tuple[Exception, type[ClawpipeError]]] = [
    (_of_status("AuthenticationError", 401), ConfigError),
    (_of_status("APIStatusError", 402), ConfigError),
    (_of_status("BadRequestError", 400), ConfigError),
    (_of_status("NotFoundError", 404), DataError),
    (_of_status("RateLimitError", 429), BusyError),
    (_of_status("InternalServerError", 500), BusyError),
    (tinker.APIConnectionError(request=_response(200).request), BusyError),
    (httpx.ReadError("cut"), BusyError),
    (FutureTimeoutError(), BusyError),
    (_failed("user"), DataError),
    (_failed("server"), BusyError),
    (_caused(ValueError("Error retrieving result"), _of_status("AuthenticationError", 401)), ConfigError),
    (_caused(RuntimeError("poisoned"), _of_status("RateLimitError", 429)), BusyError),
    (tinker.TinkerError("The api_key must start with the 'tml-' prefix"), ConfigError),
    (RuntimeError("odd\nlines"), TrainingError),
]


@pytest.mark.parametrize(("error", "kind"), CASES, ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "")
def test_each_error_of_the_library_has_an_exit_code(error, kind):
    from clawpipe.model.hosted.tinker_errors import told_as_ours  # it needs the library

    with pytest.raises(kind) as caught, told_as_ours("http://127.0.0.1:1"):
        raise error
    assert type(caught.value) is kind
    assert "\n" not in caught.value.what
