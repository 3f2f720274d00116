"""What went wrong at a service that speaks Tinker's API, as one of clawpipe's errors: one line, and an exit code."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import contextmanager

import httpx
import tinker
from pydantic import ValidationError
from tinker.lib.retryable_exception import RetryableException

from clawpipe.core.basics.words import without_secret
from clawpipe.errors import BusyError, ClawpipeError, ConfigError, DataError, TrainingError
from clawpipe.model.hosted.statuses import LATER, error_of_status

_KEY = "TINKER_API_KEY"
_LENGTH = 300  # most characters of what the service said


@contextmanager
def told_as_ours(where: str) -> Iterator[None]:
    """Raise the library's errors as clawpipe's.

    Args:
        where: the service's URL.
    """
    try:
        yield
    except ClawpipeError:
        raise
    except (tinker.TinkerError, httpx.HTTPError, RetryableException, FutureTimeoutError, RuntimeError, ValueError) as error:
        raise _ours(error, where) from error


def _ours(error: BaseException, where: str) -> ClawpipeError:
    match error:
        case tinker.APIStatusError():
            return error_of_status(error.status_code, _said(error), where, _KEY)
        case tinker.RequestFailedError():
            return _of_request(error, where)
        case tinker.APIConnectionError() | httpx.HTTPError() | RetryableException():
            return BusyError(f"the service does not answer: {_said(error)}", where, LATER)
        case FutureTimeoutError():
            return BusyError("the service did not answer in the time of train.backend.options.timeout", where, LATER)
        case ValidationError() | tinker.APIResponseValidationError():
            return TrainingError(f"the service's answer is not of its API: {_said(error)}", where)
        case tinker.TinkerError():
            return ConfigError(_said(error), where, "set TINKER_API_KEY to a key of this service")
    if error.__cause__ is not None:  # the library wraps what an earlier request, or the wait for a result, ended with
        return _ours(error.__cause__, where)
    return TrainingError(f"the service's library failed: {_said(error)}", where)


def _of_request(error: tinker.RequestFailedError, where: str) -> ClawpipeError:
    """Return the error of a request that the service accepted and could not do: the user's fault, or its own."""
    said = f"the service could not do it: {_said(error)}"
    if error.category == tinker.types.RequestErrorCategory.User:
        return DataError(said, where, "check that the model there is the one whose tokens the rows hold")
    return BusyError(said, where, LATER)


def _said(error: BaseException) -> str:
    return without_secret(str(error), os.environ.get(_KEY, ""))[:_LENGTH] or type(error).__name__
