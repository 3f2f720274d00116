"""The turns of held-out conversations: their tokens, and the calls of tools that a policy can be asked to make anew."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from clawpipe.core.basics.json_types import JsonObject, Row
from clawpipe.core.contracts.schema import conformed, schema_of
from clawpipe.core.conversation.messages import Message, ToolCall
from clawpipe.core.store.artifacts import Store
from clawpipe.core.store.datasets import read_dataset
from clawpipe.core.store.refs import DatasetRef
from clawpipe.data.wire.arguments import arguments_of
from clawpipe.play.environments.split import stable_hash

TOKENS = ("tokens", "token_ids", "loss_mask", "turns", "rendered_ids", "rendered_mask")  # columns that `scored_tokens` reads


@dataclass(frozen=True)
class Turn:
    """A turn: the token ids before it, the number of its own, its message and its place, and the JSON of the tools on offer."""

    name: str
    prompt: Sequence[int]
    length: int
    reply: Message
    place: int
    tools: str

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        return self.reply.tool_calls

    @property
    def expected(self) -> list[JsonObject]:
        return [{"name": call.name, "arguments": arguments_of(call)} for call in self.calls]


def call_turn(row: Row) -> Turn | None:
    """Return the turn with tool calls that a conversation stands for; see `reply_turn`."""
    return _chosen(row, [turn for turn in _turns(row) if _is_whole(turn.reply)])


def reply_turn(row: Row) -> Turn | None:
    """Return the main turn that a conversation stands for; None if it has none, or its tokens do not show where turns begin.

    Args:
        row: row of `trajectories` with recorded or rendered tokens.
    """
    return _chosen(row, _turns(row))


def _chosen(row: Row, turns: Sequence[Turn]) -> Turn | None:
    return turns[stable_hash(row["trajectory_id"]) % len(turns)] if turns else None


def _turns(row: Row) -> list[Turn]:
    ids, _ = scored_tokens(row)
    messages = [Message.from_dict(message) for message in row["messages"]]
    name, tools = row["trajectory_id"], row["tools"] or "[]"
    main = _main_turns(row, messages)
    return [Turn(name, ids[:start], end - start, messages[place], place, tools) for (start, end), place in main]


def _main_turns(row: Row, messages: Sequence[Message]) -> list[tuple[tuple[int, int], int]]:
    """Return the ranges of tokens of the main turns, each with the place of its message; empty if these cannot be told."""
    replies = [place for place, message in enumerate(messages) if message.role == "assistant"]
    if row["tokens"] != "none":  # the turns are the last replies
        turns = row["turns"] or []
        placed = zip(turns, replies[len(replies) - len(turns) :], strict=False)
        return [((turn["start"], turn["end"]), place) for turn, place in placed if turn["kind"] == "main"]
    runs, kinds = list(_runs(row["rendered_mask"] or ())), row["kinds"] or ["main"] * len(replies)
    main = [place for place, kind in zip(replies, kinds, strict=True) if kind == "main"]
    return list(zip(runs, main, strict=True)) if len(runs) == len(main) else []


def scored_tokens(row: Row) -> tuple[list[int], list[bool]]:
    """Return the ids of a conversation and the mask of its main turns: recorded, or rendered, whose mask leaves side turns out."""
    if row["tokens"] == "none":
        return list(row["rendered_ids"] or ()), list(row["rendered_mask"] or ())
    main = [(turn["start"], turn["end"]) for turn in row["turns"] or () if turn["kind"] == "main"]
    mask = [False] * len(row["loss_mask"] or ())
    for start, end in main:
        mask[start:end] = row["loss_mask"][start:end]
    return list(row["token_ids"] or ()), mask


def heldout_tokens(store: Store, heldout: DatasetRef) -> list[Row]:
    """Return token_ids and loss_mask of each row that an evaluation is about: of trajectories, or of the chosen sides of pairs."""
    if heldout.name == "preference_pairs":
        rows = read_dataset(store, heldout, ["chosen_token_ids", "chosen_loss_mask"]).to_pylist()
        sides = [(row["chosen_token_ids"], row["chosen_loss_mask"]) for row in rows]
    else:
        table = conformed(read_dataset(store, heldout), schema_of("trajectories"))
        sides = list(map(scored_tokens, table.select(list(TOKENS)).to_pylist()))
    return [{"token_ids": ids, "loss_mask": mask} for ids, mask in sides]


def _is_whole(message: Message) -> bool:
    return bool(message.tool_calls) and not any(call.malformed for call in message.tool_calls)


def _runs(mask: Sequence[bool]) -> Iterator[tuple[int, int]]:
    """Yield start and end of each run of trained tokens, which is one turn: headers separate turns."""
    place = 0
    for trained, run in groupby(mask):
        length = sum(1 for _ in run)
        if trained:
            yield place, place + length
        place += length
