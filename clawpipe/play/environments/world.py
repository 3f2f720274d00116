"""Environments whose tasks a program can do in place of the policy's shell: `terminal` and `swe`."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from clawpipe.errors import ConfigError
from clawpipe.play.environments.base import Environment, Reason, TaskItem, Verdict
from clawpipe.play.sandbox.base import Limits, Sandbox

APART = ("bubblewrap", "container")  # sandboxes that have files and a network of their own alone
_BESIDE = "/tmp/program"


class TaskError(Exception):
    """A task cannot be set up, so nobody can say how the policy did."""


class TaskTimeoutError(TaskError):
    """The tests of a task take longer than a call of the environment may."""


@contextmanager
def of_task(is_tasks_own: bool) -> Iterator[None]:
    """What a task names itself, such as its image, ends its episode alone where it does not start: the error is the task's."""
    try:
        yield
    except ConfigError as error:
        if not is_tasks_own:
            raise
        raise TaskError(str(error)) from error


@dataclass(frozen=True)
class Needs:
    """What a program needs of the sandbox of a task.

    Attributes:
        paths: further folders of this machine that it reads, where the sandbox has files of its own.
        limits: in place of the task's, by their names.
        seconds: that the tests of the task may take at most, whatever the task says.
    """

    paths: tuple[str, ...] = ()
    limits: Mapping[str, Any] = field(default_factory=dict[str, Any])
    seconds: float = math.inf

    def options(self, provider: str, given: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the options of a sandbox."""
        wanted = self.paths and provider in APART
        return {**given, "paths": [*given.get("paths", ()), *self.paths]} if wanted else given

    def bounded(self, limits: Limits) -> Limits:
        """Return the limits of a sandbox."""
        return replace(limits, **self.limits)

    def require_in_time(self, ended: str | None, seconds: float) -> None:
        """Raise a TaskTimeoutError where tests were ended that may take so many seconds by what their task says: of these nobody
        knows what they would have said."""
        if ended == "timeout" and self.seconds < seconds:
            raise TaskTimeoutError(f"its tests took longer than environment.call_timeout, {self.seconds:g} s")


NOTHING = Needs()


@dataclass(frozen=True)
class Site:
    """Where a program works.

    Attributes:
        provider: name of the sandbox.
        folder: in which the program starts; ".": where the sandbox starts its commands.
        beside: a folder for what the program needs, such as the files that its command names.
        variables: of the program.
    """

    sandbox: Sandbox
    provider: str
    folder: str = "."
    beside: str = "."
    variables: Mapping[str, str] = field(default_factory=dict[str, str])

    @classmethod
    def of_task(cls, sandbox: Sandbox, provider: str, folder: str, variables: Mapping[str, str]) -> Site:
        """Return a site in whose folder lie a task's files alone; what a program needs, and its home, are elsewhere."""
        if provider == "unsafe_local":  # its folder is the only one of its own, and the home
            return cls(sandbox, provider, folder, variables=variables)
        return cls(sandbox, provider, folder, _BESIDE, {"HOME": f"{_BESIDE}/home"} | dict(variables))


class Work(Protocol):
    """A task that a program does: an episode of the world in which nobody is asked for commands."""

    def site(self) -> Site:
        """Return where the program works, made ready for it. Called once."""
        ...

    def finish(self, reason: Reason) -> Verdict:
        """Return what was achieved.

        Raises:
            TaskTimeoutError: its tests take too long.
            TaskError: the task cannot be set up for them.
        """
        ...

    def close(self) -> None: ...


class World(Environment, Protocol):
    """An environment whose tasks programs can do."""

    def distinct_items(self, split: str) -> int: ...

    def warnings(self) -> list[str]: ...

    def open(self, item: TaskItem, needs: Needs) -> Work:
        """Begin a task.

        Raises:
            TaskError, DataError: it cannot be set up.
            ConfigError, BusyError: the sandbox does not start.
        """
        ...
