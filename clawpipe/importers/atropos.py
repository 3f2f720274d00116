"""Atropos: groups of scored sequences, as `process` writes them (JSON Lines) and as its API carries them (`ScoredDataGroup`).

In `masks` a trained position holds its token, every other one -100. `inference_logprobs` hold 1.0 where nothing was sampled: no
log-prob is positive, so the sentinel cannot be mistaken. A group's sequences become one conversation each, in one group.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from clawpipe.importers.chat import read_message, write_chat
from clawpipe.importers.record import Conversation, Fields, Judgement, Tokens, all_main, as_list, first_request
from clawpipe.importers.strict import RefusedError

_IGNORED = -100
_NOT_SAMPLED = 1.0
_PARALLEL = ("tokens", "masks", "scores", "advantages", "inference_logprobs", "messages", "overrides", "ref_logprobs")
_TOO_LARGE = 2**31


def is_atropos(record: dict[str, Any]) -> bool:
    return isinstance(record.get("tokens"), list) and isinstance(record.get("masks"), list) and "scores" in record


def read_atropos(record: dict[str, Any], group: str) -> Iterator[Conversation]:
    """The sequences of a group, whose rows all must be sound: an advantage means nothing without the others.

    Args:
        group: name for the group, if it does not carry one.

    Raises:
        RefusedError: a field is missing, or the sequences do not fit together.
    """
    fields = Fields(record)
    columns = {name: fields.take(name, list, default=None) for name in _PARALLEL}
    size = len(_required(columns, "tokens"))
    for name, column in columns.items():
        if column is not None and len(column) != size:
            raise RefusedError(f"{name}: not one entry a sequence")
    for name in ("masks", "scores", "messages"):
        _required(columns, name)
    rest = {name: value for name, value in fields.rest.items() if value is not None}
    yield from (_sequence(columns, index, group, rest) for index in range(size))


def write_atropos(rows: Sequence[Conversation]) -> dict[str, Any]:
    """The group that `read_atropos` reads back; every row needs tokens and one judgement."""
    tokens = [row.tokens for row in rows if row.tokens]
    return {
        "tokens": [list(part.ids) for part in tokens],
        "masks": [[token if kept else _IGNORED for token, kept in zip(part.ids, part.mask, strict=True)] for part in tokens],
        "scores": [row.judgements[0].value for row in rows],
        "advantages": _all([part.advantages for part in tokens]),
        "inference_logprobs": _all([_with_sentinel(part) for part in tokens]),
        "messages": [write_chat(row.messages) for row in rows],
    }


def _required(columns: dict[str, Any], name: str) -> list[Any]:
    if columns[name] is None:
        fix = "messages: missing (set include_messages)" if name == "messages" else f"{name}: missing"
        raise RefusedError(fix)
    return columns[name]


def _sequence(columns: dict[str, Any], index: int, group: str, rest: dict[str, Any]) -> Conversation:
    row = {name: column[index] for name, column in columns.items() if column is not None}
    messages = tuple(read_message(part, number) for number, part in enumerate(as_list(row["messages"], "messages[]")))
    score = row["scores"]
    if not isinstance(score, int | float) or isinstance(score, bool):
        raise RefusedError("scores[]: not a number")
    extra = rest | {name: row[name] for name in ("overrides", "ref_logprobs") if row.get(name)}
    return Conversation(
        messages,
        all_main(messages),
        first_request(messages),
        group=group,
        tokens=_tokens(row),
        judgements=(Judgement(float(score), "verifier", reason="score of the environment"),),
        extra=extra,
    )


def _tokens(row: dict[str, Any]) -> Tokens:
    ids, masks = _ids(row["tokens"], "tokens[]"), _ids(row["masks"], "masks[]", least=_IGNORED)
    if len(ids) != len(masks):
        raise RefusedError("masks[]: not one entry a token")
    if any(mask not in (_IGNORED, token) for token, mask in zip(ids, masks, strict=True)):
        raise RefusedError("masks[]: neither -100 nor the token")
    mask = [value != _IGNORED for value in masks]
    silenced = (row.get("overrides") or {}).get("set_advantage_to_zero") is True
    advantages = [0.0] * len(ids) if silenced else _floats(row.get("advantages"), len(ids), "advantages[]")
    return Tokens(ids, mask, _behaviour(row.get("inference_logprobs"), mask), advantages)


def _behaviour(values: Any, mask: Sequence[bool]) -> list[float] | None:
    """Log-probs of the trained tokens, 0 elsewhere; None unless every trained token has one."""
    logprobs = _floats(values, len(mask), "inference_logprobs[]")
    if logprobs is None or any(kept and value > 0 for kept, value in zip(mask, logprobs, strict=True)):
        return None
    return [value if kept else 0.0 for kept, value in zip(mask, logprobs, strict=True)]


def _ids(values: Any, where: str, least: int = 0) -> list[int]:
    if not isinstance(values, list) or not all(type(value) is int and least <= value < _TOO_LARGE for value in values):
        raise RefusedError(f"{where}: not token ids")
    return values


def _floats(values: Any, length: int, where: str) -> list[float] | None:
    if values is None:
        return None
    if not isinstance(values, list) or len(values) != length or not all(type(value) in (int, float) for value in values):
        raise RefusedError(f"{where}: not one number a token")
    return [float(value) for value in values]


def _with_sentinel(tokens: Tokens) -> list[float] | None:
    if tokens.logprobs is None:
        return None
    return [value if kept else _NOT_SAMPLED for value, kept in zip(tokens.logprobs, tokens.mask, strict=True)]


def _all(columns: list[Any]) -> list[Any] | None:
    return None if any(column is None for column in columns) else [list(column) for column in columns]
