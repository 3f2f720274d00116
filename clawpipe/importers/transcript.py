"""Transcripts of Hermes' gateway, `sessions/*.jsonl`: one message of the chat API a line, a file a session, which is named by it.

    {"role": "session_meta", "tools": [...], "model": ..., "platform": ...}    first; a cron job's turns are side turns
    {"role": "user", "content": ..., "timestamp": ...}                         and so on

Any file of such messages, with or without the first line, is read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import PurePath
from typing import Any

from clawpipe.importers.message import CALLERS, ROLES, read_messages, take_system
from clawpipe.importers.record import SIDE, Conversation, Fields, Kind, counted, first_request, main_but_muted, take_tools

_META = "session_meta"
_ELSE = ("messages", "conversations", "contents", "prompt", "message")  # what makes a line another record
_SAYS = ("content", "parts", "tool_calls")


def is_transcript(record: dict[str, Any]) -> bool:
    role = record.get("role")
    speaks = isinstance(role, str) and (role in ROLES or role in CALLERS) and any(name in record for name in _SAYS)
    return (speaks or role == _META) and not any(name in record for name in _ELSE)


def join_transcript(records: Sequence[dict[str, Any]], file: str) -> Iterator[Conversation]:
    """The session of a file.

    Raises:
        RefusedError: it is no conversation.
    """
    told = [record for record in records if record["role"] == _META]
    meta = Fields({name: value for record in told for name, value in record.items() if name != "role"})
    said = read_messages(take_system(meta, [record for record in records if record["role"] != _META]))
    side: Kind | None = "side" if meta.peek("platform") in SIDE else None
    kinds = main_but_muted(said.messages, said.muted)
    yield Conversation(
        said.messages,
        tuple(side or kind for kind in kinds),
        first_request(said.messages),
        session=session_of(file),
        user=meta.take("user_id", str, default=None),
        model=meta.take("model", str, default=None),
        tools=take_tools(meta),
        extra=meta.rest | ({"messages": said.unknown} if said.unknown else {}),
        unread=said.unread,
        **counted(said.messages, said.failed),
    )


def session_of(file: str) -> str:
    """The name of a session that its file alone names, without the suffixes."""
    return PurePath(file).name.partition(".")[0]
