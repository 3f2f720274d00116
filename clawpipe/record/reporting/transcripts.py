"""Show a few held-out conversations, incumbent and candidate side by side, to a reader."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

from clawpipe.core.basics.json_types import Row
from clawpipe.core.conversation.messages import Message
from clawpipe.core.store.artifacts import Store
from clawpipe.core.store.datasets import read_dataset
from clawpipe.core.store.refs import DatasetRef
from clawpipe.errors import DataError
from clawpipe.record.nights.status import NightStatus, StepEntry

_SHOWN = {"won": 3, "lost": 2, "unsolved": 2, "solved": 1}  # maximum number of items for each outcome


@dataclass(frozen=True)
class Answer:
    """One model's conversation about an item; `lines` holds (role, text) of each message after the question."""

    role: str
    success: bool
    lines: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Transcript:
    item_id: str
    slice: str
    outcome: str
    question: str
    answers: tuple[Answer, ...]


def heldout_transcripts(store: Store, status: NightStatus) -> list[Transcript]:
    """Return the first few items that the candidate won, lost, left unsolved, or solved like the incumbent, in item order.

    Empty if the night generated nothing to evaluate, or the store no longer has the conversations.
    """
    if status.measure != "success":
        return []
    steps = {step.name.removeprefix("evaluate/"): step for step in status.steps if step.name.startswith("evaluate/")}
    roles = ("champion" if "champion" in steps else "base", "candidate")
    try:
        evaluations = [_evaluation(store, steps[role]) for role in roles]
    except (KeyError, DataError):
        return []
    pairs = [_transcript(roles, before, evaluations[1][item]) for item, before in evaluations[0].items() if item in evaluations[1]]
    return [shown for outcome, count in _SHOWN.items() for shown in islice((p for p in pairs if p.outcome == outcome), count)]


def _evaluation(store: Store, step: StepEntry) -> dict[str, Row]:
    """Return result and messages by item id, without items that ended in an error."""
    results, trajectories = step.artifacts["output"], step.artifacts["trajectories"]
    assert isinstance(results, DatasetRef)
    assert isinstance(trajectories, DatasetRef)
    messages = {
        row["trajectory_id"]: row["messages"]
        for row in read_dataset(store, trajectories, ["trajectory_id", "messages"]).to_pylist()
    }
    rows = read_dataset(store, results, ["item_id", "slice", "success", "trajectory_id"]).to_pylist()
    return {row["item_id"]: row | {"messages": messages[row["trajectory_id"]]} for row in rows if row["success"] is not None}


def _transcript(roles: tuple[str, str], before: Row, after: Row) -> Transcript:
    names = {(False, True): "won", (True, False): "lost", (False, False): "unsolved", (True, True): "solved"}
    conversations = [list(message_lines(row["messages"])) for row in (before, after)]
    answers = [
        Answer(role, row["success"], tuple(lines[1:]))
        for role, row, lines in zip(roles, (before, after), conversations, strict=True)
    ]
    return Transcript(
        item_id=before["item_id"],
        slice=before["slice"],
        outcome=names[before["success"], after["success"]],
        question=conversations[0][0][1] if conversations[0] else "",
        answers=tuple(answers),
    )


def message_lines(messages: list[Row]) -> Iterator[tuple[str, str]]:
    """Yield role and text of each message, with its calls."""
    for row in messages:
        message = Message.from_dict(row)
        calls = [f"{call.name}({call.arguments})" + (" (malformed)" if call.malformed else "") for call in message.tool_calls]
        yield message.role, "\n".join(filter(None, [message.content, *calls]))
