"""The environment protocol: an environment makes task items, answers the policy in an episode, and verifies the outcome."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Literal, Protocol, get_args, runtime_checkable

from clawpipe.core.basics.json_types import JsonObject, Row
from clawpipe.core.conversation.messages import Message, ToolSpec
from clawpipe.core.store.plain_digests import sha256_plain

Kind = Literal["tool-call", "terminal", "swe", "gui", "chat"]
KINDS: tuple[str, ...] = get_args(Kind)
Reason = Literal["done", "max_turns", "length", "error", "timeout"]  # why an episode ended


@dataclass(frozen=True)
class TaskItem:
    """One prompt, with the ground truth that is needed to score an answer.

    Attributes:
        identity: what the split hashes. Two items with one identity are never on different sides.
        slice: the part of the environment that the gate checks separately, e.g. the tool's name.
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

    def as_row(self) -> Row:
        """Return a row of the `task_items` dataset."""
        return asdict(self) | {"messages": [message.as_dict() for message in self.messages]}

    @classmethod
    def from_row(cls, row: Row) -> TaskItem:
        """Return the item of a row, as Arrow returns rows; columns that are no part of the task are ignored."""
        own: Row = {field.name: row[field.name] for field in fields(cls)}
        own["messages"] = tuple(Message.from_dict(message) for message in row["messages"])
        return cls(**own)


@dataclass(frozen=True)
class Outcome:
    """The outcome of an episode: `value` is the shaped reward in [0, 1]; reports and the gate count `success`."""

    value: float
    success: bool
    reason: str
    evidence: JsonObject


@dataclass(frozen=True)
class Hindsight:
    """Hints that would have made an episode better, had the policy seen them.

    Attributes:
        hints: candidates, each one to three sentences.
        demonstration: the turns that would have been right, without the question: assistant, tool, assistant and so on.
    """

    hints: tuple[str, ...]
    demonstration: tuple[Message, ...] = ()


@dataclass(frozen=True)
class Verdict:
    """What the world of an episode says when the episode ends. It is recorded for `verify`, and the policy never sees it.

    Attributes:
        evidence: plain JSON, such as the results of tests: {"passed": 3, "failed": 1}.
    """

    evidence: JsonObject


@dataclass(frozen=True)
class Answer:
    """The environment's answer to a turn of the policy.

    Attributes:
        messages: what the policy sees next.
        reward: of the turn, which is recorded and becomes the verifier's score of it; finite. None: it has none.
        done: whether the episode is over.
    """

    messages: Sequence[Message] = ()
    reward: float | None = None
    done: bool = False


class Episode(Protocol):
    """One run of one task item. It may have `finish`, see `Finishes`."""

    def respond(self, messages: Sequence[Message]) -> list[Message] | Answer | None:
        """Return the environment's answer to `messages`, the last of which is the policy's; None ends the episode."""
        ...

    def close(self) -> None: ...


@runtime_checkable
class Finishes(Protocol):
    """An episode whose world is asked at its end: run the tests, look at the files, compare the page."""

    def finish(self, reason: Reason) -> Verdict | None:
        """Return what the world says. Called once, before `close`.

        Args:
            reason: why the episode ends: "done", the policy or the environment ended it; "max_turns"; "length", a turn or the whole
                was cut; "error", `respond` raised; "timeout", a call took too long.
        """
        ...


class Environment(Protocol):
    """A class with these members, in a module of this package or in a file of the user's, is an environment.

    `name` and `kind` (one of `KINDS`) are string constants in the class body, so that it can be listed without importing it.
    """

    name: str
    kind: str

    def tools(self) -> list[ToolSpec]:
        """Return the tools on offer. The renderer describes them to the policy, so no message of the environment has to."""
        ...

    def preamble(self) -> list[Message]:
        """Return the messages that begin every episode: a system message and, where they help, worked examples as chat turns."""
        ...

    def items(self, split: str, count: int, seed: int) -> list[TaskItem]:
        """Return the first `count` items of "train" or "heldout". Equal arguments give equal items; a larger count adds to them.

        Raises:
            ConfigError: no such split.
            DataError: it has fewer.
        """
        ...

    def start(self, item: TaskItem) -> Episode: ...

    @property
    def verify(self) -> Callable[..., Outcome]:
        """`verify(item, messages)`, or `verify(item, messages, verdict)` where episodes have `finish`: return the outcome of an
        episode, from what is recorded alone: its messages, without the preamble, and its verdict, None if there is none."""
        ...


@runtime_checkable
class WithHindsight(Protocol):
    """An environment with hindsight: methods that learn from hints need it."""

    @property
    def hindsight(self) -> Callable[..., Hindsight | None]:
        """`hindsight(item, messages)`, or with the verdict as `verify`: return hints for an episode, a successful one too; None if
        there are none. It reads its arguments alone."""
        ...


@runtime_checkable
class WithDistinctItems(Protocol):
    """An environment that knows how many different items it can make.

    Each night then draws held-out items that no night has looked at. Without this, every night asks the same ones.
    """

    def distinct_items(self, split: str) -> int | None:
        """Return how many items `items` gives before an identity repeats, whatever the seed; None: there is no limit."""
        ...


@runtime_checkable
class WithWarnings(Protocol):
    """An environment that left something out of its items, which the night's summary then says."""

    def warnings(self) -> list[str]:
        """Return one sentence for each thing that a reader should know."""
        ...


def distinct_items(environment: object, split: str) -> int | None:
    """Return `environment.distinct_items(split)`; 0 if the environment has no such method."""
    return environment.distinct_items(split) if isinstance(environment, WithDistinctItems) else 0


def question_item(
    environment: Environment, split: str, ordinal: int, *, identity: str, part: str, question: str, truth: JsonObject
) -> TaskItem:
    """Return an item of one user message; its id is 16 hex digits of the sha256 of environment, identity and question."""
    return TaskItem(
        item_id=sha256_plain([environment.name, identity, question])[:16],
        identity=identity,
        environment=environment.name,
        kind=environment.kind,
        split=split,
        slice=part,
        messages=(Message("user", question),),
        truth=json.dumps(truth, sort_keys=True),
        ordinal=ordinal,
    )
