"""A conversation as rows under contract: its trajectory, and the scores that came with it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import msgspec
import orjson
import pyarrow as pa

from clawpipe.contracts.odcs import load_contract
from clawpipe.contracts.schema import schema_of
from clawpipe.importers.record import Conversation, Judgement, Origin, Preference, Prompt, Tokens, prompt_hash
from clawpipe.importers.strict_json import RefusedError
from clawpipe.ingest.dataset_writer import record_batch
from clawpipe.ingest.options import Options
from clawpipe.messages import Message
from clawpipe.store.digests import sha256_bytes

Row = dict[str, Any]
ENVIRONMENT = SOURCE = "imported"
UNNAMED = "unnamed"  # the policy version of tokens of which nobody says who sampled them
_VERSION = re.compile(r"[A-Za-z0-9._:-]{1,128}")
_MOST = 2**31 - 1
_ORDERED = orjson.OPT_SORT_KEYS
_MESSAGES = msgspec.json.Encoder(order="sorted")  # takes objects as they are


@dataclass(frozen=True)
class Named:
    """A conversation with the names of its rows. `index` is its number among the attempts at its item."""

    conversation: Conversation
    trajectory_id: str
    item_id: str
    index: int


def item_id_of(prompt: str) -> str:
    """Equal prompts are one task."""
    return prompt_hash(prompt)[:16]


def task_of(conversation: Conversation) -> str:
    """The item of a conversation: attempts of one group are one task, and no others are."""
    return item_id_of(f"group/{conversation.group}" if conversation.group else conversation.prompt)


def content_of(conversation: Conversation, user: str | None = None) -> bytes:
    """What a conversation says and who said it when: equal for equal lines, whatever file they are in.

    Args:
        conversation: what was read.
        user: whose it is where it does not say; what two users say alike are two conversations.
    """
    tokens = conversation.tokens
    recorded = [list(tokens.ids), list(tokens.mask), list(tokens.logprobs or ())] if tokens else None
    whose = conversation.user or user
    body = b'{"format":%b,"messages":%b,"session":%b,"tokens":%b%b}' % (
        orjson.dumps(origin_of(conversation).format),
        spelled_messages(conversation.messages),
        orjson.dumps(conversation.session),
        orjson.dumps(recorded),
        b',"user":' + orjson.dumps(whose) if whose else b"",
    )
    return sha256_bytes(body).encode()


def trajectory_id_of(content: bytes, occurrence: int) -> str:
    return sha256_bytes(content + f"/{occurrence}".encode())[:32]


def spelled_messages(messages: Sequence[Message]) -> bytes:
    """JSON with one spelling, that of `spelled`."""
    return _MESSAGES.encode(messages)


def origin_row(origin: Origin) -> Row:
    return {"format": origin.format, "file": origin.file, "line": origin.line}


def origin_of(record: Conversation | Preference | Prompt) -> Origin:
    """Readers know where each record comes from."""
    assert record.origin is not None
    return record.origin


def trajectory_row(named: Named, told: Options) -> Row:
    """The row of `trajectories`. Tokens without log-probs stay in `extra`: no ratio can be taken of them; text is rendered anew."""
    conversation, tokens = named.conversation, named.conversation.tokens
    recorded = tokens is not None and tokens.logprobs is not None
    version = told.policy_version or (_policy(conversation, tokens) if recorded else None)
    extra = _extra(conversation, recorded)
    row = {
        "trajectory_id": named.trajectory_id,
        "item_id": named.item_id,
        "group_id": f"{named.item_id}/{version or ''}",
        "rollout_index": named.index,
        "environment": ENVIRONMENT,
        "split": "train",
        "source": SOURCE,
        "policy_version": version,
        "messages": conversation.messages,
        "seed": 0,
        "finish_reason": "length" if conversation.status == "truncated" else "stop",
        "session_id": conversation.session,
        "user_id": conversation.user or told.user,
        "model": conversation.model,
        "status": conversation.status,
        "tool_calls": conversation.tool_calls,
        "tool_errors": conversation.tool_errors,
        "tools": conversation.tools,
        "origin": origin_row(origin_of(conversation)),
        "extra": spelled(extra) if extra else None,
    }
    return row | (_recorded(conversation, told) if recorded else text_only(conversation.kinds))


def exported_row(conversation: Conversation, changed: bool) -> Row:
    """The row that clawpipe itself had exported; without its tokens where its messages held a secret (`changed`)."""
    assert conversation.row is not None
    columns = schema_of("trajectories").names
    row = {name: value for name, value in conversation.row.items() if name in columns}
    row["messages"] = conversation.messages
    row["tools"], row["extra"] = conversation.tools, spelled(conversation.extra) if conversation.extra else None
    row["origin"] = row.get("origin") or origin_row(origin_of(conversation))
    return row | (text_only(conversation.kinds) if changed else {})


def check(conversation: Conversation) -> None:
    """What columns can hold.

    Raises:
        RefusedError: a count that is none; a row of clawpipe's own that lacks a column or has one of another type.
    """
    for name in ("tool_calls", "tool_errors"):
        if not 0 <= (getattr(conversation, name) or 0) <= _MOST:
            raise RefusedError(f"{name}: out of range")
    if conversation.row is not None:
        _check_row(exported_row(conversation, changed=False))


def _check_row(row: Row) -> None:
    try:
        record_batch([row], schema_of("trajectories"))
    except (pa.ArrowException, TypeError, ValueError, OverflowError, AttributeError):
        raise RefusedError("a column of another type") from None
    missing = [column.name for column in load_contract("trajectories").columns if column.required and row.get(column.name) is None]
    if missing:
        raise RefusedError(f"{missing[0]}: required")


_NO_TOKENS: Row = {
    "token_ids": (),
    "loss_mask": (),
    "logprobs": (),
    "turns": (),
    "prompt_tokens": 0,
    "tokens": "none",
    "temperature": 0.0,
    "renderer_digest": None,
    "logprobs_kind": None,
}


def text_only(kinds: Sequence[str]) -> Row:
    """The columns of a row without tokens."""
    return _NO_TOKENS | {"kinds": kinds}


def score_rows(named: Named) -> Iterator[Row]:
    """What the file says of the conversation. Several opinions of one turn are several scorers."""
    if not named.conversation.judgements:
        return
    seen: Counter[tuple[int | None, str]] = Counter()
    for judgement in sorted(named.conversation.judgements, key=lambda one: -1 if one.turn is None else one.turn):
        scorer = f"{SOURCE}/{origin_of(named.conversation).format}/{judgement.origin}"
        seen[judgement.turn, scorer] += 1
        number = seen[judgement.turn, scorer]
        yield score_row(named.trajectory_id, scorer if number == 1 else f"{scorer}/{number}", judgement)


def score_row(trajectory_id: str, scorer: str, judgement: Judgement) -> Row:
    return {
        "trajectory_id": trajectory_id,
        "turn": judgement.turn,
        "scorer": scorer,
        "origin": judgement.origin,
        "value": judgement.value,
        "success": judgement.success,
        "reason": judgement.reason,
        "evidence": spelled(judgement.evidence),
        "hints": [hint for hint in judgement.hints if hint] or None,
        "demonstration": None,
    }


def spelled(value: Any) -> str:
    """JSON with one spelling."""
    return orjson.dumps(value, option=_ORDERED | orjson.OPT_NON_STR_KEYS).decode()


def _policy(conversation: Conversation, tokens: Tokens | None) -> str:
    """Who sampled the tokens: a name says less than a digest, and more than nothing."""
    digest, name = tokens and tokens.policy_version, f"model:{conversation.model}"
    found = digest or (name if conversation.model else UNNAMED)
    return found if _VERSION.fullmatch(found) else UNNAMED


def _recorded(conversation: Conversation, told: Options) -> Row:
    tokens = conversation.tokens
    assert tokens is not None
    spans = list(_spans(tokens.mask))
    kinds = ["main"] * (len(spans) - len(conversation.kinds)) + list(conversation.kinds)[-len(spans) :]
    turns = [
        {"start": start, "end": end, "kind": kind, "finish_reason": "stop"} for (start, end), kind in zip(spans, kinds, strict=True)
    ]
    if conversation.status == "truncated":
        turns[-1]["finish_reason"] = "length"
    temperature = told.temperature if tokens.temperature is None else tokens.temperature
    return {
        "renderer_digest": f"{SOURCE}/{origin_of(conversation).format}",
        "token_ids": list(tokens.ids),
        "loss_mask": list(tokens.mask),
        "logprobs": list(tokens.logprobs or ()),
        "prompt_tokens": spans[0][0],
        "turns": turns,
        "temperature": 1.0 if temperature is None else temperature,
        "logprobs_kind": "none" if temperature is None else told.logprobs or tokens.kind,  # engines differ in what they sample at
        "tokens": "recorded",
    }


def _spans(mask: Sequence[bool]) -> Iterator[tuple[int, int]]:
    """Start and end of each run of sampled tokens."""
    place = 0
    for sampled, run in groupby(mask):
        length = sum(1 for _ in run)
        if sampled:
            yield place, place + length
        place += length


def _extra(conversation: Conversation, recorded: bool) -> Row:
    """Everything that no column holds, the tokens' own advantages among it."""
    tokens, extra = conversation.tokens, dict(conversation.extra)
    if tokens and tokens.advantages is not None:
        extra.setdefault("advantages", list(tokens.advantages))
    if tokens and not recorded:
        extra |= {"tokens": list(tokens.ids), "mask": list(tokens.mask)}
    return extra
