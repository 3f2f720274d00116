"""The usual chat line, which most files are made of, read in one step by its type.

    {"messages": [{"role", "content"}, ...], "session_id", "user", "model", "tools"}, each field at most once

Only what `read_chat` would accept is accepted, as the same conversation; of anything else nothing is said, not even why: that is
left to the readers that know every format and every reason.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Literal

import msgspec
import orjson
from msgspec import UNSET, UnsetType

from clawpipe.importers.chat import session_in
from clawpipe.importers.record import Conversation, Origin, all_main, check_names, counted, first_request
from clawpipe.importers.strict_json import MAX_DEPTH, RefusedError, count_keys, look_at_bytes, may_repeat_a_key
from clawpipe.importers.toolcalls import tool_call, tools_on_offer
from clawpipe.messages import Message

FAST_FORMAT = "chat"  # the format that it is
_TOOLS, _LISTS = 64 << 10, 500  # bytes and lists of tool schemas; parsers agree on what is nested less
_UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class _Exact(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """Fields that are there or `UNSET`, so that they can be counted."""


class _Function(_Exact):
    name: str
    arguments: str


class _Call(_Exact):
    id: str
    function: _Function
    type: str | UnsetType = UNSET


class _Said(_Exact):
    role: Literal["system", "user", "assistant", "tool"]
    content: str | None
    tool_calls: list[_Call] | UnsetType = UNSET
    tool_call_id: str | UnsetType = UNSET
    name: str | UnsetType = UNSET


class _Chat(_Exact):
    messages: list[_Said]
    session_id: str | UnsetType = UNSET
    user: str | UnsetType = UNSET
    model: str | UnsetType = UNSET
    tools: msgspec.Raw | UnsetType = UNSET


_decode = msgspec.json.Decoder(_Chat).decode


def read_fast(line: bytes, origin: Origin) -> Conversation | None:
    """The conversation on a line, as `read_chat` reads it; None where the line is any other."""
    try:
        look_at_bytes(line)
        return _conversation(_decode(line), line, origin)
    except (RefusedError, *_UNREADABLE):
        return None


def _conversation(chat: _Chat, line: bytes, origin: Origin) -> Conversation | None:
    names = (chat.session_id, chat.user, chat.model)
    if "" in names:
        return None
    tools, keys = (None, 0) if chat.tools is UNSET else _tools(bytes(chat.tools)[: _TOOLS + 1])
    keys += 1 + (chat.tools is not UNSET) + 3 - names.count(UNSET)
    said = [(Message(one.role, one.content or ""), 2) if _is_plain(one) else _message(one) for one in chat.messages]
    if may_repeat_a_key(line, keys + sum([found for _, found in said])):
        return None
    session, user, model = map(_given, names)
    check_names(session_id=session, user_id=user)
    messages = tuple([message for message, _ in said])
    kinds, prompt = all_main(messages), first_request(messages)
    session = session or session_in(messages)
    return Conversation(messages, kinds, prompt, session, user, None, model, tools=tools, origin=origin, **counted(messages))


def _is_plain(said: _Said) -> bool:
    return said.tool_calls is UNSET and said.tool_call_id is UNSET and said.name is UNSET


def _message(said: _Said) -> tuple[Message, int]:
    """The message, and how many keys it has.

    Raises:
        RefusedError: `read_chat` has to look at it.
    """
    given = (said.tool_calls, said.tool_call_id, said.name)
    if (said.tool_calls is not UNSET and said.role != "assistant") or (
        said.name is not UNSET and (said.role != "tool" or not said.name)
    ):
        raise RefusedError("unusual")
    wanted = said.tool_calls or ()
    calls = tuple([tool_call(call.function.name, call.function.arguments, call.id) for call in wanted])
    keys = 5 - given.count(UNSET) + sum([4 + (call.type is not UNSET) for call in wanted])
    return Message(said.role, said.content or "", calls, _given(said.tool_call_id), _given(said.name)), keys


def _given(text: str | UnsetType) -> str | None:
    return None if text is UNSET else text


@lru_cache(maxsize=64)
def _tools(given: bytes) -> tuple[str | None, int]:
    """The tools on offer, and the number of keys in them. They are the same on many lines.

    Raises:
        RefusedError: `read_chat` has to look at them.
    """
    if given[:1] != b"[" or given.count(b"[") > _LISTS or len(given) > _TOOLS:
        raise RefusedError("unusual")
    try:
        tools = orjson.loads(given)
    except orjson.JSONDecodeError:
        raise RefusedError("unusual") from None
    return tools_on_offer(tools), count_keys(tools, MAX_DEPTH - 1)
