"""Read and write groups of scored sequences of Atropos: JSON Lines of `process`, and `ScoredDataGroup` of its API.

`masks` holds the token at trained positions, and -100 elsewhere. `inference_logprobs` holds 1.0 at positions that were not sampled;
no log-prob is that large, even after rounding. The log-probs come from SGLang, at the sampling temperature, or from vLLM, by
default at 1; a group does not record which. Each sequence becomes a conversation of one group. The group's name is a digest of its
content, because a run asks the same question at every step.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import orjson

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.core.contracts.logprobs import SAMPLED_AT, are_absent
from clawpipe.core.conversation.messages import Message
from clawpipe.data.importers.content import placeholder
from clawpipe.data.importers.fields import Fields
from clawpipe.data.importers.message import read_messages, write_chat
from clawpipe.data.importers.record import Conversation, Judgement, Kind, Tokens, all_main, counted, first_request
from clawpipe.data.importers.strict_json import RefusedError
from clawpipe.data.wire.draw import changes_the_draw, sampling_settings
from clawpipe.data.wire.failures import MARKS

_IGNORED = -100
_NOT_SAMPLED = 1.0
_TEACHER = ("distill_token_ids", "distill_logprobs")
_OF_GROUP = "images_of_group"
_OF_TOKENS = ("ref_logprobs", *_TEACHER)
_KEPT = ("overrides", "images", *_OF_TOKENS)
_OWN = (_OF_GROUP, "messages", "advantages", "tokens", "mask", SAMPLED_AT, MARKS)  # what ingest adds to the fields of a row
_PARALLEL = ("tokens", "masks", "scores", "advantages", "inference_logprobs", "messages", *_KEPT)
_TOO_LARGE = 2**31


def is_atropos(record: JsonObject) -> bool:
    batch = record.get("batch")
    return _is_group(record) or (isinstance(batch, list) and bool(batch) and all(map(_is_group, batch)))


def read_atropos(record: JsonObject) -> Iterator[Conversation]:
    """Yield the sequences of a group, or of a batch of groups. One bad sequence refuses all: advantages depend on the whole group.

    Raises:
        RefusedError: a field is missing, or the fields differ in length.
    """
    if not _is_group(record):
        for part in record["batch"]:
            yield from read_atropos(part)
        return
    fields, size = Fields(_with_images_named(record)), len(record["tokens"])
    columns = {name: fields.take(name, list, default=None) for name in _PARALLEL}
    if not size:
        raise RefusedError("tokens: no sequence")
    for name, column in columns.items():
        if column is not None and len(column) != size:
            raise RefusedError(f"{name}: not one entry a sequence")
    for name in ("masks", "scores", "messages"):
        _required(columns, name)
    group = _name(columns)
    yield from (_sequence(columns, index, group, fields.rest) for index in range(size))


def _with_images_named(record: JsonObject) -> JsonObject:
    """Return the group with images, which may have any form, under `_OF_GROUP` unless they are a list with an entry a sequence."""
    images = record.get("images")
    if images is None or (isinstance(images, list) and len(images) == len(record["tokens"])):
        return record
    return {name: value for name, value in record.items() if name != "images"} | {_OF_GROUP: images}


def _name(columns: JsonObject) -> str:
    """Return the digest of the tokens, masks and scores."""
    return hashlib.sha256(orjson.dumps([columns[name] for name in ("tokens", "masks", "scores")])).hexdigest()


def _is_group(record: Any) -> bool:
    return (
        isinstance(record, dict)
        and isinstance(record.get("tokens"), list)
        and isinstance(record.get("masks"), list)
        and "scores" in record
    )


def write_atropos(rows: Sequence[Conversation]) -> JsonObject:
    """Return the group that `read_atropos` reads back; every row needs tokens (`tokens_of`) and one judgement."""
    tokens = [part for row in rows if (part := tokens_of(row))]
    extras = [row.extra for row in rows]
    shared = {name: value for name, value in extras[0].items() if name not in (*_KEPT, *_OWN)}
    return {**_sampled_at(rows), **shared} | {
        "tokens": [list(part.ids) for part in tokens],
        "masks": [[token if kept else _IGNORED for token, kept in zip(part.ids, part.mask, strict=True)] for part in tokens],
        "scores": [row.judgements[0].value for row in rows],
        "advantages": _all([part.advantages for part in tokens]),
        "inference_logprobs": [_with_sentinel(part) for part in tokens] if any(part.logprobs for part in tokens) else None,
        "messages": [_written_messages(row) for row in rows],
        "overrides": _any([extra.get("overrides") for extra in extras], {}),
        "images": extras[0].get(_OF_GROUP) or _any([extra.get("images") for extra in extras], None),
        **{name: _all([extra.get(name) for extra in extras]) for name in _OF_TOKENS},
    }


def _sampled_at(rows: Sequence[Conversation]) -> JsonObject:
    """Return the field that says at which temperature all rows were drawn; none where that is not one that their log-probs have."""
    heats = {row.tokens.temperature if row.tokens else None for row in rows}
    kinds = {(row.row or {}).get("logprobs_kind") for row in rows}
    return (
        {"generation_params": {"temperature": heats.pop()}}
        if len(heats) == 1 and None not in heats and kinds == {"tempered"}
        else {}
    )


def tokens_of(row: Conversation) -> Tokens | None:
    """Return the tokens of a stored row, as its record held them: those that nothing is trained on are in `extra`."""
    extra, tokens = row.extra, row.tokens
    advantages = extra.get("advantages")
    if tokens is None:
        return Tokens(extra["tokens"], extra["mask"], None, advantages) if "tokens" in extra and "mask" in extra else None
    absent = are_absent((row.row or {}).get("logprobs_kind"), tokens.logprobs or ())
    return replace(tokens, logprobs=None if absent else tokens.logprobs, advantages=advantages)


def _written_messages(row: Conversation) -> list[JsonObject]:
    written = write_chat(row.messages)
    for unknown in row.extra.get("messages", ()):
        message, kept = written[unknown["message"]], dict(unknown)
        parts = kept.pop("content", {}).get("unread", ())
        message |= {name: value for name, value in kept.items() if name != "message"}
        if isinstance(message.get("content"), str):
            message["content"] = _with_parts(message["content"], parts)
    return written


def _with_parts(text: str, kept: Sequence[JsonObject]) -> str | list[JsonObject]:
    """Return a message's content with the parts that are no text in place of their placeholders; the text if it has none."""
    pieces: list[JsonObject] = []
    for part in kept:
        before, mark, after = text.partition(placeholder(part, str(part.get("type"))))
        if mark:
            pieces += [*_text_part(before.removesuffix("\n")), part]
            text = after.removeprefix("\n")
    return [*pieces, *_text_part(text)] if pieces else text


def _text_part(text: str) -> list[JsonObject]:
    return [{"type": "text", "text": text}] if text else []


def _required(columns: JsonObject, name: str) -> list[Any]:
    if columns[name] is None:
        fix = "messages: missing (set include_messages)" if name == "messages" else f"{name}: missing"
        raise RefusedError(fix)
    return columns[name]


def _sequence(columns: JsonObject, index: int, group: str, rest: JsonObject) -> Conversation:
    row = {name: column[index] for name, column in columns.items() if column is not None}
    if not isinstance(row["messages"], list):
        raise RefusedError("messages[]: not a list")
    read = read_messages(row["messages"], "messages[]")
    messages, unknown = read.messages, read.unknown
    tokens = _tokens(row, rest.get("generation_params"))
    _check_teacher(row, len(tokens.ids))
    extra = rest | {name: row[name] for name in _KEPT if row.get(name)} | ({"messages": unknown} if unknown else {})
    kinds: tuple[Kind, ...] = tuple("side" for _ in all_main(messages)) if _silenced(row.get("overrides")) else all_main(messages)
    return Conversation(
        messages,
        kinds,
        first_request(messages),
        group=group,
        tokens=tokens,
        judgements=(_score(row["scores"], "scores[]", "score of the environment"), *_rewards(messages, unknown)),
        extra=extra,
        unread=read.unread,
        **counted(messages),
    )


def _score(value: Any, where: str, reason: str, turn: int | None = None) -> Judgement:
    if type(value) not in (int, float):
        raise RefusedError(f"{where}: not a number")
    return Judgement(float(value), "verifier", turn=turn, reason=reason)


def _rewards(messages: Sequence[Message], unknown: Sequence[JsonObject]) -> Iterator[Judgement]:
    """Yield the rewards of single turns, which an environment may give beside that of the sequence."""
    replies = [number for number, message in enumerate(messages) if message.role == "assistant"]
    for part in unknown:
        if part["message"] in replies and "reward" in part:
            yield _score(part["reward"], "messages[].reward", "reward of the turn", replies.index(part["message"]))


def _check_teacher(row: JsonObject, length: int) -> None:
    """Check that a teacher's tokens [T][K] and log-probs [T][K] have the same lengths."""
    ids, logprobs = (row.get(name) for name in _TEACHER)
    for name, column in zip(_TEACHER, (ids, logprobs), strict=True):
        if column is not None and not (isinstance(column, list) and len(column) == length and all(map(_is_list, column))):
            raise RefusedError(f"{name}[]: not one list a token")
    if ids is not None and logprobs is not None and list(map(len, ids)) != list(map(len, logprobs)):
        raise RefusedError("distill_logprobs[]: not one number a token of the teacher")


def _is_list(value: Any) -> bool:
    return isinstance(value, list)


def _temperature(parameters: Any) -> float | None:
    value = parameters.get("temperature") if isinstance(parameters, dict) else None
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _tokens(row: JsonObject, parameters: Any) -> Tokens:
    ids, masks = _ids(row["tokens"], "tokens[]"), _ids(row["masks"], "masks[]", least=_IGNORED)
    if len(ids) != len(masks):
        raise RefusedError("masks[]: not one entry a token")
    if any(mask not in (_IGNORED, token) for token, mask in zip(ids, masks, strict=True)):
        raise RefusedError("masks[]: neither -100 nor the token")
    mask = [value != _IGNORED for value in masks]
    silenced = _silenced(row.get("overrides"))
    advantages = [0.0] * len(ids) if silenced else _floats(row.get("advantages"), len(ids), "advantages[]")
    logprobs, temperature = _behaviour(row.get("inference_logprobs"), mask), _temperature(parameters)
    changed = changes_the_draw(sampling_settings(parameters)) if isinstance(parameters, dict) else None
    return Tokens(ids, mask, logprobs, advantages, temperature, kind="none" if changed else "unknown")


def _silenced(overrides: Any) -> bool:
    return isinstance(overrides, dict) and overrides.get("set_advantage_to_zero") is True


def _behaviour(values: Any, mask: Sequence[bool]) -> list[float] | None:
    """Return the log-probs of the trained tokens, 0 elsewhere; None unless every trained token has one."""
    logprobs = _floats(values, len(mask), "inference_logprobs[]")
    if logprobs is None or any(kept and value == _NOT_SAMPLED for kept, value in zip(mask, logprobs, strict=True)):
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


def _with_sentinel(tokens: Tokens) -> list[float]:
    """Return the log-probs as Atropos writes them; of a sequence without any, as if none of its tokens was sampled."""
    if tokens.logprobs is None:
        return [_NOT_SAMPLED] * len(tokens.ids)
    return [value if kept else _NOT_SAMPLED for value, kept in zip(tokens.logprobs, tokens.mask, strict=True)]


def _any(columns: list[Any], nothing: Any) -> list[Any] | None:
    """Return a field of which some sequences have none; None if no one has any."""
    return [nothing if column is None else column for column in columns] if any(column is not None for column in columns) else None


def _all(columns: list[Any]) -> list[Any] | None:
    return None if any(column is None for column in columns) else [list(column) for column in columns]
