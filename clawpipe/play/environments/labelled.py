"""One of a night's several environments: its items, slices and identities are told from those of the others by its label."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from clawpipe.core.conversation.messages import Message, ToolSpec
from clawpipe.play.environments.base import Environment, Hindsight, Outcome, TaskItem, Verdict, WithWarnings, distinct_items
from clawpipe.play.environments.calling import called
from clawpipe.play.environments.ending import Ending, hindsight_of
from clawpipe.play.environments.hosted import HostedEnvironment
from clawpipe.play.environments.play import Plays


def labelled_item(item: TaskItem, label: str, name: str) -> TaskItem:
    """Return an environment's own item as one of several environments' items.

    Args:
        label: of the environment in this night.
        name: that the environment has in every night: what one identity stands for does not depend on the label.
    """
    item_id, part = f"{label}:{item.item_id}", f"{label}/{item.slice}"
    return replace(item, item_id=item_id, identity=f"{name}/{item.identity}", environment=label, slice=part)


def own_item(item: TaskItem, name: str) -> TaskItem:
    """Return an item as its environment made it; one that has no label is returned unchanged."""
    before = {"item_id": f"{item.environment}:", "slice": f"{item.environment}/", "identity": f"{name}/"}
    values = {field: getattr(item, field) for field in before}
    if not all(values[field].startswith(prefix) for field, prefix in before.items()):
        return item
    return replace(item, environment=name, **{field: values[field].removeprefix(prefix) for field, prefix in before.items()})


class LabelledEnvironment:
    """An environment that is called by its label, and makes and takes items with it.

    Args:
        environment: that is asked, with its own items.
        name: see `labelled_item`.

    Attributes:
        own_name: the same name.
    """

    def __init__(self, environment: Environment | HostedEnvironment, label: str, name: str) -> None:
        self.environment, self.name, self.own_name = environment, label, name
        self.kind = environment.kind

    def has(self, identity: str) -> bool:
        """Whether an identity is one of this environment's."""
        return identity.startswith(f"{self.own_name}/")

    def tools(self) -> list[ToolSpec]:
        return self.environment.tools()

    def preamble(self) -> list[Message]:
        return self.environment.preamble()

    def items(self, split: str, count: int, seed: int) -> list[TaskItem]:
        return [labelled_item(item, self.name, self.own_name) for item in self.environment.items(split, count, seed)]

    def distinct_items(self, split: str) -> int | None:
        return distinct_items(self.environment, split)

    def warnings(self) -> list[str]:
        return self.environment.warnings() if isinstance(self.environment, WithWarnings) else []

    def start(self, item: TaskItem, seed: int) -> object:
        return called(self.environment.start, own_item(item, self.own_name), seed=seed)

    def verify(self, item: TaskItem, messages: Sequence[Message], verdict: Verdict | None) -> Outcome:
        return called(self.environment.verify, own_item(item, self.own_name), messages, verdict=verdict)

    def hindsight(self, item: TaskItem, messages: Sequence[Message], verdict: Verdict | None) -> Hindsight | None:
        return hindsight_of(self.environment, own_item(item, self.own_name), messages, Ending(verdict=verdict))


def runs_apart(environment: Plays) -> bool:
    """Whether episodes run in processes of their own, so that threads may wait for them side by side."""
    inner = environment.environment if isinstance(environment, LabelledEnvironment) else environment
    return isinstance(inner, HostedEnvironment)
