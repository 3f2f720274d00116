"""The fast path for the most common chat lines: msgspec decodes them in one step by their type.

    {"messages": [{"role", "content"}, ...], "session_id", "user", "model", "tools"}, each field at most once

It accepts only lines that `read_chat` accepts, and returns the same conversation. For any other line it returns None without a
reason: the general readers know every format and every reason.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Literal

import msgspec
import orjson
from msgspec import UNSET, UnsetType

from clawpipe.core.conversation.messages import Message
from clawpipe.data.importers.formats.chat import session_in
from clawpipe.data.importers.record import Conversation, Origin, all_main, check_names, counted, first_request
from clawpipe.data.importers.strict_json import MAX_DEPTH, RefusedError, check_bytes, count_keys, may_repeat_a_key
from clawpipe.data.importers.toolcalls import tools_on_offer
from clawpipe.data.wire.arguments import tool_call

FAST_FORMAT = "chat"  # the name of its format
_TOOLS, _LISTS = 64 << 10, 500  # bytes and lists of tool schemas; below this, parsers agree
_UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class _Exact(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """A struct whose absent fields are `UNSET`, so that present ones can be counted."""


class _Function(_Exact):
    name: str
    arguments: str


class _Call(_Exact):
    id: str
    function: _Function
    type: str | UnsetType = UNSET


class _ChatMessage(_Exact):
    role: Literal["system", "user", "assistant", "tool"]
    content: str | None
    tool_calls: list[_Call] | UnsetType = UNSET
    tool_call_id: str | UnsetType = UNSET
    name: str | UnsetType = UNSET


class _Chat(_Exact):
    messages: list[_ChatMessage]
    session_id: str | UnsetType = UNSET
    user: str | UnsetType = UNSET
    model: str | UnsetType = UNSET
    tools: msgspec.Raw | UnsetType = UNSET


_decode = msgspec.json.Decoder(_Chat).decode


def read_fast(line: bytes, origin: Origin) -> Conversation | None:
    """Return the conversation on a line as `read_chat` reads it; None if the line needs the general reader."""
    try:
        check_bytes(line)
        return _conversation(_decode(line), line, origin)
    except (RefusedError, *_UNREADABLE):
        return None


def _conversation(chat: _Chat, line: bytes, origin: Origin) -> Conversation | None:
    names = (chat.session_id, chat.user, chat.model)
    if "" in names:
        return None
    tools, keys = (None, 0) if chat.tools is UNSET else _tools(bytes(chat.tools)[: _TOOLS + 1])
    keys += 1 + (chat.tools is not UNSET) + 3 - names.count(UNSET)
    counted_messages = [(Message(one.role, one.content or ""), 2) if _is_plain(one) else _message(one) for one in chat.messages]
    if may_repeat_a_key(line, keys + sum([found for _, found in counted_messages])):
        return None
    session, user, model = map(_given, names)
    check_names(session_id=session, user_id=user)
    messages = tuple([message for message, _ in counted_messages])
    kinds, prompt = all_main(messages), first_request(messages)
    session = session or session_in(messages)
    return Conversation(messages, kinds, prompt, session, user, None, model, tools=tools, origin=origin, **counted(messages))


def _is_plain(message: _ChatMessage) -> bool:
    return message.tool_calls is UNSET and message.tool_call_id is UNSET and message.name is UNSET


def _message(message: _ChatMessage) -> tuple[Message, int]:
    """Return a message, and the number of its keys.

    Raises:
        RefusedError: the message needs `read_chat`.
    """
    given = (message.tool_calls, message.tool_call_id, message.name)
    if (message.tool_calls is not UNSET and message.role != "assistant") or (
        message.name is not UNSET and (message.role != "tool" or not message.name)
    ):
        raise RefusedError("unusual")
    wanted = message.tool_calls or ()
    calls = tuple([tool_call(call.function.name, call.function.arguments, call.id) for call in wanted])
    keys = 5 - given.count(UNSET) + sum([4 + (call.type is not UNSET) for call in wanted])
    return Message(message.role, message.content or "", calls, _given(message.tool_call_id), _given(message.name)), keys


def _given(text: str | UnsetType) -> str | None:
    return None if text is UNSET else text


@lru_cache(maxsize=64)
def _tools(given: bytes) -> tuple[str | None, int]:
    """Return the tools on offer, and the number of their keys; cached, because many lines have the same tools.

    Raises:
        RefusedError: the tools need `read_chat`.
    """
    if given[:1] != b"[" or given.count(b"[") > _LISTS or len(given) > _TOOLS:
        raise RefusedError("unusual")
    try:
        tools = orjson.loads(given)
    except orjson.JSONDecodeError:
        raise RefusedError("unusual") from None
    return tools_on_offer(tools), count_keys(tools, MAX_DEPTH - 1)
