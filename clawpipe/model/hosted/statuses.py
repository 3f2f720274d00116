"""What a service's HTTP status means for whoever asked: one of clawpipe's errors."""

from __future__ import annotations

from clawpipe.errors import BusyError, ClawpipeError, ConfigError, DataError

LATER = "run again: it goes on from what was saved"
_GONE = "check the model's name there; saved weights may have expired: raise train.backend.options.keep_seconds, and train anew"


def error_of_status(status: int, text: str, where: str, key: str) -> ClawpipeError:
    """Return the error for a status that is no success.

    Args:
        text: what the service said, without secrets.
        where: the service.
        key: environment variable of its key.
    """
    said = f"the service answers {status}: {text}"
    match status:
        case 401 | 403:
            return ConfigError(f"the service refuses the key: {said}", where, f"set {key} to a key of this service")
        case 402:
            return ConfigError(f"the account cannot pay: {said}", where, "settle it there, and run again: each step is saved")
        case 404 | 410:
            return DataError(said, where, _GONE)
        case 400 | 422:
            return ConfigError(said, where, "check the model's name there, and the settings")
        case _:
            return BusyError(said, where, LATER)
