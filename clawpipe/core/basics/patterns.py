"""Regular expressions that users write, in Python's dialect, with a limit on the time of each search.

In Python's own engine a pattern such as `^(a|a)*$` takes twice the time for each further character of some texts.
"""

from __future__ import annotations

import logging
import re
from functools import lru_cache

import regex

SECONDS = 1.0  # of CPU time, for one pattern and one text
OUT_OF_TIME = f"the regular expression took more than {SECONDS:g} s"

_log = logging.getLogger(__name__)


def occurs(pattern: str | re.Pattern[str], text: str) -> bool | None:
    """Return whether a pattern matches somewhere in a text; None if it ran out of time.

    Raises:
        ValueError: it is no pattern.
    """
    return _found(*_parts(pattern), text, False)


def fits(pattern: str | re.Pattern[str], text: str) -> bool | None:
    """Return whether a pattern matches a text as a whole; None if it ran out of time.

    Raises:
        ValueError: it is no pattern.
    """
    return _found(*_parts(pattern), text, True)


def _parts(pattern: str | re.Pattern[str]) -> tuple[str, int]:
    try:
        compiled = re.compile(pattern)
    except (re.error, RecursionError, OverflowError) as error:
        raise ValueError(str(error)) from None
    return compiled.pattern, compiled.flags


@lru_cache(maxsize=64)  # who asks for the reason of a failure searches no second time
def _found(pattern: str, flags: int, text: str, whole: bool) -> bool | None:
    compiled = _compiled(pattern, flags)
    try:
        match = (compiled.fullmatch if whole else compiled.search)(text, timeout=SECONDS)
    except TimeoutError:
        _say(pattern)
        return None
    return match is not None


@lru_cache(maxsize=256)
def _compiled(pattern: str, flags: int) -> regex.Pattern[str]:
    try:
        return regex.compile(pattern, flags)  # the flags have the numbers of `re`
    except regex.error as error:
        raise ValueError(str(error)) from None


@lru_cache(maxsize=256)
def _say(pattern: str) -> None:
    """Log once that a pattern is too slow."""
    _log.warning(
        "%r: %s on a text, and counts as not found there; write it without repetitions inside of others", pattern, OUT_OF_TIME
    )
