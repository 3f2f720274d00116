"""Convert preferences and prompts to rows under contract."""

from __future__ import annotations

import orjson

from clawpipe.core.basics.json_types import Row
from clawpipe.core.conversation.messages import Message
from clawpipe.core.store.digests import sha256_bytes
from clawpipe.data.importers.record import Preference, Prompt
from clawpipe.data.importers.strict_json import RefusedError
from clawpipe.data.ingest.intake.rows import ENVIRONMENT, canonical_json, item_id_of, messages_json, origin_of, origin_row


def check_pair(pair: Preference) -> None:
    """Check a pair against its contract.

    Raises:
        RefusedError: with the contract's reason.
    """
    if not pair.prompt or not pair.chosen or not pair.rejected:
        raise RefusedError("prompt, chosen or rejected: shorter than 1")
    if pair.chosen == pair.rejected:
        raise RefusedError("both sides are one")
    if any(call.malformed for message in pair.chosen for call in message.tool_calls):
        raise RefusedError("chosen: a malformed call")
    if pair.margin is not None and pair.margin < 0:
        raise RefusedError("margin: below 0")


def pair_id_of(pair: Preference) -> str:
    return sha256_bytes(f"{_side_id(pair, pair.chosen)}/{_side_id(pair, pair.rejected)}".encode())[:32]


def pair_row(pair: Preference, pair_id: str, user: str | None) -> Row:
    """Return the row of `preference_pairs`, text only. `user` is the user of records that name none."""
    item_id = item_of(pair.prompt)
    sides = {"chosen": pair.chosen, "rejected": pair.rejected}
    row: Row = dict(sides)
    row |= {f"{name}_id": _side_id(pair, messages) for name, messages in sides.items()}
    row |= {f"{name}_{stream}": [] for name in sides for stream in ("token_ids", "loss_mask")}
    return row | {
        "pair_id": pair_id,
        "item_id": item_id,
        "group_id": f"{item_id}/",
        "strategy": "imported",
        "margin": pair.margin,
        "prompt_tokens": 0,
        "temperature": 0.0,
        "weight": 1.0,
        "tokens": "none",
        "session_id": pair.session,
        "user_id": pair.user or user,
        "prompt": pair.prompt,
        "tools": pair.tools,
        "origin": origin_row(origin_of(pair)),
        "extra": canonical_json(dict(pair.extra)) if pair.extra else None,
    }


def item_row(prompt: Prompt, item_id: str, ordinal: int, user: str | None) -> Row:
    """Return the row of `task_items`; `truth` holds the record's further fields for a verifier. `user` is as for `pair_row`."""
    return {
        "item_id": item_id,
        "identity": f"{ENVIRONMENT}/{item_id}",
        "environment": ENVIRONMENT,
        "kind": "tool-call" if prompt.tools else "chat",
        "split": "train",
        "slice": "",
        "messages": prompt.messages,
        "truth": canonical_json(dict(prompt.extra) | ({"tools": orjson.loads(prompt.tools)} if prompt.tools else {})),
        "ordinal": ordinal,
        "session_id": prompt.session,
        "user_id": prompt.user or user,
        "origin": origin_row(origin_of(prompt)),
    }


def item_of(messages: tuple[Message, ...]) -> str:
    """Return the item of a prompt: by its first user message, as for conversations, else by all messages."""
    asked = next((message.content for message in messages if message.role == "user"), None)
    return item_id_of(messages_json(messages).decode() if asked is None else asked)


def _side_id(pair: Preference, side: tuple[Message, ...]) -> str:
    return sha256_bytes(messages_json((*pair.prompt, *side)))[:32]
