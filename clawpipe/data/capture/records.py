"""Encode and decode the records of a segment, one JSON line per record.

A line is a JSON object of its own, so that any tool can read a segment:

    {"crc":"1c291ca3","record":{"kind":"turn",...}}

`crc` is the CRC-32 of the record's bytes, in 8 hexadecimal digits. A line that was cut short, or whose CRC differs, is no record.
"""

from __future__ import annotations

import zlib
from typing import Literal

import msgspec

from clawpipe.core.basics.json_types import JsonObject

TurnType = Literal["main", "side"]
LogprobsKind = Literal["tempered", "raw", "unknown", "none"]  # as in the contract of trajectories
Api = Literal["chat", "completions", "responses", "messages"]
Ending = Literal["complete", "cancelled", "broken"]  # the client went away; the engine broke off

_HEAD, _MIDDLE, _TAIL = b'{"crc":"', b'","record":', b"}"
_RECORD = len(_HEAD) + 8 + len(_MIDDLE)  # bytes before the record


class Answer(msgspec.Struct, omit_defaults=True):
    """One choice of an answer. `token_ids` [T] are what was sampled, `logprobs` [T] their log-probs in nats; both or neither."""

    message: JsonObject
    finish_reason: str | None = None
    token_ids: list[int] | None = None
    logprobs: list[float] | None = None


class Turn(msgspec.Struct, tag_field="kind", tag="turn", omit_defaults=True):
    """One request and its answers.

    Attributes:
        id: the turn's own id, which the client is told.
        time: when the answer was complete, in seconds since 1970.
        key: name of the client's key; sessions of two keys never mix.
        session_from: where the session's id was found, or "derived".
        turn_type_from: where the turn type was found, or "derived".
        done: whether the client said that the session ends with this turn.
        response_id: the answer's id in the engine's words.
        request: the request as the client sent it, without the fields that were for the gateway; redacted.
        prompt_token_ids: the prompt as the engine consumed it; None if it did not say, or if a text of it was redacted.
        no_tokens: why there are no tokens, if there are none.
        temperature: the sampling temperature; None if nobody says.
        policy_version, model_version, digest: from the headers of the engine's answer.
        api: how the client asked. `request` and `answers` are those of a chat in any case.
    """

    id: str
    time: float
    key: str
    session: str
    session_from: str
    turn_type: TurnType
    turn_type_from: str
    request: JsonObject
    answers: list[Answer]
    ending: Ending = "complete"
    seconds: float = 0.0
    parent: str | None = None
    user: str | None = None
    done: bool = False
    response_id: str | None = None
    model: str | None = None
    upstream: str = ""
    prompt_token_ids: list[int] | None = None
    no_tokens: str | None = None
    logprobs_kind: LogprobsKind = "unknown"
    temperature: float | None = None
    usage: JsonObject | None = None
    policy_version: str | None = None
    model_version: str | None = None
    digest: str | None = None
    api: Api = "chat"


class Feedback(msgspec.Struct, tag_field="kind", tag="feedback", omit_defaults=True):
    """Feedback on a turn, which is named by its id or its response's id, or by its session and number (from 1).

    Attributes:
        value: from -1 (bad) to 1 (good).
        correction: what the answer should have been.
    """

    id: str
    time: float
    key: str
    response_id: str | None = None
    session: str | None = None
    turn: int | None = None
    value: float | None = None
    correction: str | None = None
    comment: str | None = None


class Done(msgspec.Struct, tag_field="kind", tag="done"):
    """The end of a session, as its client said."""

    time: float
    key: str
    session: str


class End(msgspec.Struct, tag_field="kind", tag="end"):
    """The end of a segment that was closed in order. Nothing follows it."""

    time: float


Record = Turn | Feedback | Done | End
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Record).decode


class DamagedError(ValueError):
    """A line that is not a whole record. `args[0]` says why, in one of a few wordings."""


def line_of(record: Record) -> bytes:
    """Return the line of a record, with its newline."""
    data = _encode(record)
    return b"%b%08x%b%b}\n" % (_HEAD, zlib.crc32(data), _MIDDLE, data)


def is_line(data: bytes) -> bool:
    """Whether a line, or the beginning of one, is a segment's."""
    return data.startswith(_HEAD)


def read_line(data: bytes) -> Record:
    """Return the record of a line, which has no newline any more.

    Raises:
        DamagedError: the line is not a whole record, or not one that this version knows.
    """
    try:
        return _decode(_record_of(data))
    except msgspec.MsgspecError as error:
        raise DamagedError(f"not a record of this version: {error}") from None
    except RecursionError:
        raise DamagedError("nested too deep") from None


def _record_of(data: bytes) -> bytes:
    framed = data.startswith(_HEAD) and data[len(_HEAD) + 8 : _RECORD] == _MIDDLE and data.endswith(_TAIL)
    record = data[_RECORD:-1]
    if not framed or data[len(_HEAD) : len(_HEAD) + 8] != b"%08x" % zlib.crc32(record):
        raise DamagedError("damaged: the CRC does not match")
    return record
