"""The environments of a night, one or several, opened together."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import NamedTuple, TypeAlias

from clawpipe.core.config.environment import LABEL, Environments, EnvironmentSpec, Played, WeightedEnvironment
from clawpipe.core.conversation.messages import Message, ToolSpec
from clawpipe.errors import ConfigError
from clawpipe.play.environments.base import Environment
from clawpipe.play.environments.discovery import environment_name
from clawpipe.play.environments.hosted import HostedEnvironment, open_environment
from clawpipe.play.environments.labelled import LabelledEnvironment

World: TypeAlias = Environment | HostedEnvironment | LabelledEnvironment


class Named(NamedTuple):
    """An environment of a night.

    Attributes:
        label: what its rows are called by in this night.
        name: that it gives itself, in every night.
        labelled: whether items have the label, so that they differ from those of other environments.
    """

    label: str
    name: str
    labelled: bool
    spec: EnvironmentSpec


def named(played: Played) -> list[Named]:
    """Return the environments in their order, without importing any.

    Raises:
        NotFoundError: there is no such environment or file.
        ConfigError: an environment's own name cannot be its label.
    """
    names = [environment_name(part.name, part.python) for part in played.parts]
    if not isinstance(played, Environments):
        return [Named(names[0], names[0], False, played)]
    labels = _labels(played.parts, names)
    return [Named(label, name, True, part) for label, name, part in zip(labels, names, played.parts, strict=True)]


def _labels(parts: Sequence[WeightedEnvironment], names: Sequence[str]) -> list[str]:
    """Return a label for each: the given one, or its name, with a number where that is taken."""
    taken = {part.label for part in parts if part.label}
    labels: list[str] = []
    for place, (part, name) in enumerate(zip(parts, names, strict=True)):
        number, label = 1, part.label or name
        while part.label is None and label in taken:
            number += 1
            label = f"{name}-{number}"
        if not re.fullmatch(LABEL, label):
            raise ConfigError(
                f"{label!r} cannot be a label", f"environments[{place}]", "set `label`: up to 48 of A-Z a-z 0-9 . _ -"
            )
        taken.add(label)
        labels.append(label)
    return labels


class OpenEnvironments:
    """Open environments, by label."""

    def __init__(self, worlds: Mapping[str, World]) -> None:
        self._worlds = worlds

    @property
    def name(self) -> str:
        """All names, as a sentence has them."""
        return ", ".join(world.name for world in self)

    def __iter__(self) -> Iterator[World]:
        return iter(self._worlds.values())

    def of(self, label: str) -> World:
        """Return the environment of a row: that of its label, or the only one."""
        return next(iter(self)) if len(self._worlds) == 1 else self._worlds[label]

    def tools(self) -> list[ToolSpec]:
        """Return the tools of all environments; of those with one name, the first environment's."""
        found: dict[str, ToolSpec] = {}
        for world in self:
            found = {tool.name: tool for tool in world.tools()} | found
        return list(found.values())

    def preamble(self) -> list[Message]:
        """Return the messages that begin the episodes of all environments; none where they differ."""
        first, *others = [world.preamble() for world in self]
        return first if all(other == first for other in others) else []


@contextmanager
def open_environments(played: Played) -> Iterator[OpenEnvironments]:
    """Yield environments, and end what they run in.

    Raises:
        NotFoundError, ConfigError: see `open_environment` and `named`.
    """
    with ExitStack() as stack:
        yield OpenEnvironments({one.label: stack.enter_context(_open(one)) for one in named(played)})


@contextmanager
def _open(one: Named) -> Iterator[World]:
    with open_world(one.spec, one.label if one.labelled else None) as world:
        yield world


@contextmanager
def open_world(spec: EnvironmentSpec, label: str | None) -> Iterator[World]:
    """Yield an environment, with a label where it has one. Raises as `open_environment`."""
    with open_environment(spec.name, spec.options, spec.call_timeout, spec.python) as environment:
        name = environment_name(spec.name, spec.python)
        yield LabelledEnvironment(environment, label, name) if label else environment
