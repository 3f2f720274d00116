"""What an environment is: it makes task items, plays the world around the policy, and says how an episode went."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal, Protocol, get_args, runtime_checkable

from clawpipe.messages import Message, ToolSpec
from clawpipe.store.digests import sha256_json

Kind = Literal["tool-call", "terminal", "swe", "gui", "chat"]
KINDS: tuple[str, ...] = get_args(Kind)


@dataclass(frozen=True)
class TaskItem:
    """One prompt with what is needed to score an answer.

    Attributes:
        identity: what the split hashes. Two items with one identity are never on different sides.
        slice: the part of the environment that the gate looks at on its own, e.g. the tool's name.
        messages: the item's own messages, without the environment's preamble.
        truth: JSON that only the environment's `verify` reads.
        ordinal: position in its split.
    """

    item_id: str
    identity: str
    environment: str
    kind: str
    split: str
    slice: str
    messages: tuple[Message, ...]
    truth: str
    ordinal: int

    def as_row(self) -> dict[str, Any]:
        """A row of the `task_items` dataset."""
        return asdict(self) | {"messages": [message.as_dict() for message in self.messages]}

    @classmethod
    def from_row(cls, row: dict[str, Any]) -> TaskItem:
        """Inverse of `as_row`; takes rows as Arrow returns them. Whose an imported prompt is, is no part of the task."""
        own: dict[str, Any] = {field.name: row[field.name] for field in fields(cls)}
        own["messages"] = tuple(Message.from_dict(message) for message in row["messages"])
        return cls(**own)


@dataclass(frozen=True)
class Outcome:
    """How an episode went: `value` is the shaped reward in [0, 1], `success` is what is reported and gated on."""

    value: float
    success: bool
    reason: str
    evidence: dict[str, Any]


@dataclass(frozen=True)
class Hindsight:
    """What is known after an episode and would have made it better, had the policy seen it.

    Attributes:
        hints: candidates, each one to three sentences.
        demonstration: the turns that would have been right, without the question: assistant, tool, assistant and so on.
    """

    hints: tuple[str, ...]
    demonstration: tuple[Message, ...] = ()


class Episode(Protocol):
    """One run of one task item."""

    def respond(self, messages: Sequence[Message]) -> list[Message] | None:
        """What the environment says after `messages`, the last of which is the policy's; None ends the episode."""
        ...

    def close(self) -> None: ...


class Environment(Protocol):
    """A class with these members, in a module of this package or in a file of the user's, is an environment.

    `name` and `kind` (one of `KINDS`) are string constants in the class body, so that it can be listed without importing it.
    """

    name: str
    kind: str

    def tools(self) -> list[ToolSpec]:
        """Tools on offer. The renderer describes them to the policy, so no message of the environment has to."""
        ...

    def preamble(self) -> list[Message]:
        """What every episode begins with: a system message and, where they help, worked dialogues as chat turns."""
        ...

    def items(self, split: str, count: int, seed: int) -> list[TaskItem]:
        """The first `count` items of "train" or "heldout"; equal arguments give equal items, and more begin with the same ones.

        Raises:
            ConfigError: no such split.
            DataError: it has fewer.
        """
        ...

    def start(self, item: TaskItem) -> Episode: ...

    def verify(self, item: TaskItem, messages: Sequence[Message]) -> Outcome:
        """The outcome of an episode from its recorded messages alone (preamble excluded); raises on no conversation."""
        ...


@runtime_checkable
class WithHindsight(Protocol):
    """What an environment may have besides; methods that learn from hints have none where it lacks this."""

    def hindsight(self, item: TaskItem, messages: Sequence[Message]) -> Hindsight | None:
        """Of a success too; None where there is nothing to say. Pure, as `verify` is."""
        ...


@runtime_checkable
class WithDistinctItems(Protocol):
    """What an environment may have besides, if it can make more items than one night asks for.

    Each night then draws held-out items that no night has looked at. Without this, every night asks the same ones.
    """

    def distinct_items(self, split: str) -> int | None:
        """How many items `items` gives before an identity comes a second time, whatever the seed; None: as many as one likes."""
        ...


def distinct_items(environment: Environment, split: str) -> int | None:
    """`environment.distinct_items(split)`; 0 for one that does not say."""
    return environment.distinct_items(split) if isinstance(environment, WithDistinctItems) else 0


def question_item(
    environment: Environment, split: str, ordinal: int, *, identity: str, part: str, question: str, truth: dict[str, Any]
) -> TaskItem:
    """An item of one user message; its id is 16 hex digits of the sha256 of environment, identity and question."""
    return TaskItem(
        item_id=sha256_json([environment.name, identity, question])[:16],
        identity=identity,
        environment=environment.name,
        kind=environment.kind,
        split=split,
        slice=part,
        messages=(Message("user", question),),
        truth=json.dumps(truth, sort_keys=True),
        ordinal=ordinal,
    )
