"""Call a member of a user's class with one more argument than it had to take before, if it takes it; and await what is async."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, TypeVar

from clawpipe.core.user_code.extensions import CallError

T = TypeVar("T")


class CallTimeoutError(CallError):
    """A call took longer than its deadline."""


class EndedError(CallError):
    """The process that a call ran in has ended, or cannot be understood."""


def called(member: Callable[..., T], *arguments: Any, **offered: Any) -> T:
    """Call `member` with `arguments`, and with the one that is offered where it has a parameter of that name, or requires one more.

    A further parameter with a default and another name is the user's own, and stays at its default.
    """
    [(name, value)] = offered.items()
    parameters = inspect.signature(member).parameters
    if name in parameters:
        return member(*arguments, **offered)
    positional = [one for one in parameters.values() if one.kind is one.POSITIONAL_OR_KEYWORD]
    next_one = positional[len(arguments) : len(arguments) + 1]
    return member(*arguments, value) if next_one and next_one[0].default is next_one[0].empty else member(*arguments)
