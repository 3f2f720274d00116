"""Convert a conversation to rows under contract: a trajectory and its scores."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import groupby, repeat
from typing import Any

import msgspec
import orjson
import pyarrow as pa

from clawpipe.core.basics.json_types import Row
from clawpipe.core.contracts.logprobs import SAMPLED_AT
from clawpipe.core.contracts.logprobs import Kind as LogprobKind
from clawpipe.core.contracts.odcs import load_contract
from clawpipe.core.contracts.schema import schema_of
from clawpipe.core.contracts.text import text_only
from clawpipe.core.conversation.messages import Message
from clawpipe.core.store.digests import sha256_bytes
from clawpipe.data.importers.record import (
    Conversation,
    Judgement,
    Kind,
    Origin,
    Preference,
    Prompt,
    Tokens,
    can_be_trained_on,
    prompt_hash,
)
from clawpipe.data.importers.strict_json import RefusedError
from clawpipe.data.ingest.intake.dataset_writer import record_batch
from clawpipe.data.ingest.intake.options import Options
from clawpipe.data.ingest.intake.stored_traces import TRACE, trace_digest
from clawpipe.data.wire.failures import MARKS

ENVIRONMENT = SOURCE = "imported"
UNNAMED = "unnamed"  # the policy version of tokens from an unknown policy
_FORMER = {"sharegpt": "hermes", "template-text": "hermes"}  # names of formats in digests, which stay those of stored rows
_VERSION = re.compile(r"[A-Za-z0-9._:-]{1,128}")
_MOST = 2**31 - 1
_ORDERED = orjson.OPT_SORT_KEYS
_MESSAGES = msgspec.json.Encoder(order="sorted")  # takes objects as they are


@dataclass(frozen=True)
class Named:
    """A conversation with the names of its rows. `index` numbers the attempts at its item."""

    conversation: Conversation
    trajectory_id: str
    item_id: str
    index: int


def item_id_of(prompt: str) -> str:
    """Return the item id of a prompt; equal prompts are one item."""
    return prompt_hash(prompt)[:16]


def task_of(conversation: Conversation) -> str:
    """Return the item id of a conversation: by its group if it has one, else by its prompt."""
    return item_id_of(f"group/{conversation.group}" if conversation.group else conversation.prompt)


def content_of(conversation: Conversation, written: bytes, user: str | None = None) -> bytes:
    """Return a digest of a conversation's content, session and user; equal for equal lines of any file.

    Args:
        written: its messages as `messages_json` writes them.
        user: its user if it names none; equal conversations of two users differ.
    """
    tokens = conversation.tokens
    recorded = [list(tokens.ids), list(tokens.mask), list(tokens.logprobs or ())] if tokens else None
    owner = conversation.user or user
    format = origin_of(conversation).format
    body = b'{"format":%b,"messages":%b,"session":%b,"tokens":%b%b}' % (
        orjson.dumps(_FORMER.get(format, format)),
        written,
        orjson.dumps(conversation.session),
        orjson.dumps(recorded),
        b',"user":' + orjson.dumps(owner) if owner else b"",
    )
    return sha256_bytes(body).encode()


def rest_of(conversation: Conversation) -> int:
    """Return a digest (63 bits) of what tells equal contents apart: judgements, status and, of recorded tokens, all fields.

    0 for a text without judgements and status. Ids and times of a request that was tried again do not count.
    """
    judged = [asdict(judgement) for judgement in conversation.judgements]
    tokens = conversation.tokens
    recorded = [tokens.temperature, tokens.kind, dict(conversation.extra)] if tokens else None
    if not judged and conversation.status is None and recorded is None:
        return 0
    return int(sha256_bytes(canonical_json([judged, conversation.status, recorded]).encode())[:16], 16) >> 1


def trajectory_id_of(content: bytes, occurrence: int) -> str:
    return sha256_bytes(content + f"/{occurrence}".encode())[:32]


def messages_json(messages: Sequence[Message]) -> bytes:
    """Return the canonical JSON of messages, as `canonical_json` does."""
    return _MESSAGES.encode(messages)


def origin_row(origin: Origin) -> Row:
    return {"format": origin.format, "file": origin.file, "line": origin.line}


def origin_of(record: Conversation | Preference | Prompt) -> Origin:
    """Return the origin of a record, which readers always set."""
    assert record.origin is not None
    return record.origin


def trajectory_row(named: Named, options: Options) -> Row:
    """Return the row of `trajectories`. Tokens of which none can be trained on stay in `extra`, and the row is text only."""
    conversation, tokens = named.conversation, named.conversation.tokens
    recorded = tokens is not None and can_be_trained_on(tokens)
    version = options.policy_version or (_policy(conversation, tokens) if recorded else None)
    extra = _extra(conversation, recorded, options)
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
        "user_id": conversation.user or options.user,
        "model": conversation.model,
        "status": conversation.status,
        "tool_calls": conversation.tool_calls,
        "tool_errors": conversation.tool_errors,
        "tools": conversation.tools,
        "origin": origin_row(origin_of(conversation)),
        "extra": canonical_json(extra) if extra else None,
    }
    return row | (_recorded(conversation, options) if recorded else text_only(conversation.kinds))


def kinds_of_row(conversation: Conversation) -> list[Kind]:
    """Return the kinds that the row of a conversation holds: of its assistant messages, or of its spans of sampled tokens, which
    are the last ones of them."""
    kinds, tokens = list(conversation.kinds), conversation.tokens
    if tokens is None or not can_be_trained_on(tokens):
        return kinds
    spans = sum(1 for _ in _spans(tokens.mask))
    return [*repeat("main", spans - len(kinds)), *kinds[-spans:]]


def exported_row(conversation: Conversation, changed: bool) -> Row:
    """Return the row that clawpipe had exported; without tokens if its messages held a secret (`changed`)."""
    assert conversation.row is not None
    columns = schema_of("trajectories").names
    row = {name: value for name, value in conversation.row.items() if name in columns}
    row["messages"] = conversation.messages
    extra = dict(conversation.extra) | marks(conversation)
    row["tools"], row["extra"] = conversation.tools, canonical_json(extra) if extra else None
    row["origin"] = row.get("origin") or origin_row(origin_of(conversation))
    return row | (text_only(conversation.kinds) if changed else {})


def check(conversation: Conversation) -> None:
    """Check that the columns can hold a conversation.

    Raises:
        RefusedError: a count is out of range; an exported row lacks a column, or has one of another type.
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


def score_rows(named: Named) -> Iterator[Row]:
    """Yield the scores from the file. Several judgements of one turn get different scorers."""
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
        "evidence": canonical_json(judgement.evidence),
        "hints": [hint for hint in judgement.hints if hint] or None,
        "demonstration": None,
    }


def canonical_json(value: Any) -> str:
    """Return canonical JSON, with sorted keys."""
    return orjson.dumps(value, option=_ORDERED | orjson.OPT_NON_STR_KEYS).decode()


def _policy(conversation: Conversation, tokens: Tokens | None) -> str:
    """Return the policy version of the tokens: a digest, else the model's name, else \"unnamed\"."""
    digest, name = tokens and tokens.policy_version, f"model:{conversation.model}"
    found = digest or (name if conversation.model else UNNAMED)
    return found if _VERSION.fullmatch(found) else UNNAMED


def _recorded(conversation: Conversation, options: Options) -> Row:
    tokens = conversation.tokens
    assert tokens is not None
    spans, kinds = list(_spans(tokens.mask)), kinds_of_row(conversation)
    turns = [
        {"start": start, "end": end, "kind": kind, "finish_reason": "stop"} for (start, end), kind in zip(spans, kinds, strict=True)
    ]
    if conversation.status == "truncated":
        turns[-1]["finish_reason"] = "length"
    temperature = _temperature(tokens, options)
    return {
        "renderer_digest": f"{SOURCE}/{origin_of(conversation).format}",
        "token_ids": list(tokens.ids),
        "loss_mask": list(tokens.mask),
        "logprobs": [0.0] * len(tokens.ids) if tokens.logprobs is None else list(tokens.logprobs),
        "prompt_tokens": spans[0][0],
        "turns": turns,
        "temperature": 1.0 if temperature is None else temperature,
        "logprobs_kind": _kind(tokens, temperature, options),
        "tokens": "recorded",
    }


def _temperature(tokens: Tokens, options: Options) -> float | None:
    return options.temperature if tokens.temperature is None else tokens.temperature


def _kind(tokens: Tokens, temperature: float | None, options: Options) -> LogprobKind:
    if tokens.logprobs is None or temperature is None or tokens.kind == "none":
        return "none"
    return options.logprobs or tokens.kind


def _spans(mask: Sequence[bool]) -> Iterator[tuple[int, int]]:
    """Yield start and end of each run of sampled tokens."""
    place = 0
    for sampled, run in groupby(mask):
        length = sum(1 for _ in run)
        if sampled:
            yield place, place + length
        place += length


def _extra(conversation: Conversation, recorded: bool, options: Options) -> Row:
    """Return the fields without a column, with the advantages of the tokens."""
    tokens, extra = conversation.tokens, dict(conversation.extra)
    if tokens and tokens.advantages is not None:
        extra.setdefault("advantages", list(tokens.advantages))
    if conversation.trace and not conversation.wraps:
        extra[TRACE] = trace_digest(conversation.trace)
    if tokens and not recorded:
        extra |= {"tokens": list(tokens.ids), "mask": list(tokens.mask)}
    return extra | (_sampled_at(tokens, options) if tokens and recorded else {}) | marks(conversation)


def _sampled_at(tokens: Tokens, options: Options) -> Row:
    """Return what allows to compute log-probs that the record lacks: the temperature, where it is known and alone made the draw."""
    temperature = _temperature(tokens, options)
    return {SAMPLED_AT: temperature} if tokens.logprobs is None and tokens.kind != "none" and temperature else {}


def marks(conversation: Conversation) -> Row:
    """Return which tool results their record marks as failed or as not, for judges; counts of failures have a column."""
    return {MARKS: {str(place): mark for place, mark in conversation.failed.items()}} if conversation.failed else {}
