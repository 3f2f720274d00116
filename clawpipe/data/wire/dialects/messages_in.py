"""Requests of Anthropic's `/v1/messages` as those of chat completions.

    {"type": "tool_use", "id", "name", "input"}               a call of the assistant's message
    {"type": "tool_result", "tool_use_id", "content", ...}    a message of the role tool; `is_error` stays beside it
    {"type": "thinking", "thinking", "signature"}             `reasoning_content`; its signature proves nothing here
    {"type": "image", "source"}                               a part `image_url`

What only says how Anthropic computes or bills an answer is left out; what would change the answer cannot be translated.
"""

from __future__ import annotations

import re
from typing import Any

import orjson

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.data.wire.arguments import neutral_arguments
from clawpipe.data.wire.dialects.fields import (
    UntranslatableError,
    WrongRequestError,
    limit_of,
    list_of,
    object_of,
    streaming,
    text_of,
    without,
)
from clawpipe.data.wire.texts import joined_texts

MALFORMED = "malformed_arguments"  # the only key of an input that stands for arguments which are no JSON object
_TRANSLATED = ("system", "messages", "max_tokens", "stop_sequences", "tools", "tool_choice", "metadata", "output_config")
_OF_ANTHROPIC = (  # how the service computes and bills, and what it keeps
    *("cache_control", "context_management", "thinking", "service_tier", "inference_geo", "speed", "diagnostics", "betas"),
    *("user_profile_id", "workspace_id", "output_format", "stream_options"),
)
_STATE = ("container", "mcp_servers")  # what only the engine knows or runs
_CHOICES = {"auto": "auto", "any": "required", "none": "none"}
_EFFORTS = ("low", "medium", "high")
_SESSION = re.compile(r"_session_([0-9a-fA-F-]{8,64})\Z")  # Claude Code before 2.1.78 wrote the session's id behind the user's
_OWN_SESSION = ("session_id", "parent_session_id")  # of clawpipe's clients; Anthropic's interface has no field for it


def chat_of_messages(body: JsonObject) -> JsonObject:
    """Return a request as that of a chat completion.

    Raises:
        WrongRequestError: it breaks the rules of the interface.
        UntranslatableError: no chat completion can express it.
    """
    if any(body.get(name) for name in _STATE):
        raise UntranslatableError("state that only the engine knows")
    limit = {"max_completion_tokens": limit_of(body.get("max_tokens"), "max_tokens")}
    return limit | streaming(body) | counted_chat(body)


def as_sent(chat: JsonObject) -> JsonObject:
    """Return a request without what only a record keeps: whether a tool failed, which is no field of a chat completion."""
    messages = [{name: value for name, value in one.items() if name != "is_error"} for one in chat["messages"]]
    return chat | {"messages": messages}


def counted_chat(body: JsonObject) -> JsonObject:
    """Return a request whose tokens are only counted, and which says no limit. Raises as `chat_of_messages`."""
    messages = list_of(body.get("messages"), "messages")
    if not messages:
        raise WrongRequestError("at least one message is needed", "messages")
    given = [one for place, message in enumerate(messages) for one in _messages(message, f"messages.{place}")]
    if given[-1]["role"] == "assistant":
        raise UntranslatableError("a beginning of the answer, with which the assistant is to go on")
    chat = _whose(body) | without(body, (*_TRANSLATED, *_OF_ANTHROPIC, *_STATE))
    chat |= {"messages": [*_system(body.get("system"), "system"), *given]}
    return chat | _stops(body) | _tools(body) | _format(body)


def _system(given: Any, where: str) -> list[JsonObject]:
    if given is None or given in ("", []):
        return []
    texts = [given] if isinstance(given, str) else [_text(block, f"{where}.{n}") for n, block in enumerate(list_of(given, where))]
    return [{"role": "system", "content": joined_texts("system", texts)}]


def _text(block: Any, where: str) -> str:
    given = object_of(block, where)
    if given.get("type") != "text":
        raise UntranslatableError("a system prompt that is no text")
    return text_of(given.get("text"), f"{where}.text")


def _messages(message: Any, where: str) -> list[JsonObject]:
    """Return the messages of a chat that one message is: tool results are messages of their own."""
    given = object_of(message, where)
    content, role = given.get("content"), given.get("role")
    if role == "system":
        return _system(content, f"{where}.content")
    if role not in ("user", "assistant"):
        raise WrongRequestError("neither user nor assistant", f"{where}.role")
    if isinstance(content, str):
        return [{"role": role, "content": content}]
    blocks = [object_of(block, f"{where}.content.{n}") for n, block in enumerate(list_of(content, f"{where}.content"))]
    if role == "assistant":
        return [message_of_blocks(blocks, f"{where}.content")]
    return _asked(blocks, f"{where}.content")


def message_of_blocks(blocks: list[JsonObject], where: str) -> JsonObject:
    """Return the message of the assistant that its blocks are. Raises as `chat_of_messages`."""
    texts: list[str] = []
    thoughts: list[str] = []
    calls: list[JsonObject] = []
    for number, block in enumerate(blocks):
        place = f"{where}.{number}"
        match block.get("type"):
            case "text":
                texts.append(text_of(block.get("text"), f"{place}.text"))
            case "thinking":
                thoughts.append(text_of(block.get("thinking"), f"{place}.thinking"))
            case "redacted_thinking":
                pass
            case "tool_use":
                calls.append(_call(block, place))
            case _:
                raise UntranslatableError("a block that no chat has")
    message: JsonObject = {"role": "assistant", "content": joined_texts("assistant", texts)}
    message |= {"reasoning_content": "\n".join(thoughts)} if any(thoughts) else {}
    return message | ({"tool_calls": calls} if calls else {})


def _call(block: JsonObject, where: str) -> JsonObject:
    given = object_of(block.get("input"), f"{where}.input")
    try:
        arguments = given[MALFORMED] if given.keys() == {MALFORMED} else neutral_arguments(given)
    except ValueError:
        raise WrongRequestError("not expressible in JSON", f"{where}.input") from None
    function = {"name": text_of(block.get("name"), f"{where}.name"), "arguments": text_of(arguments, f"{where}.input")}
    return {"id": text_of(block.get("id"), f"{where}.id"), "type": "function", "function": function}


def _asked(blocks: list[JsonObject], where: str) -> list[JsonObject]:
    """Return the messages of the user and of tools that blocks are, in their order."""
    found: list[JsonObject] = []
    parts: list[JsonObject] = []
    for number, block in enumerate(blocks):
        if block.get("type") != "tool_result":
            parts.append(_part(block, f"{where}.{number}"))
            continue
        found += _user(parts)
        parts = []
        found.append(_result(block, f"{where}.{number}"))
    return [*found, *_user(parts)] or [{"role": "user", "content": ""}]


def _user(parts: list[JsonObject]) -> list[JsonObject]:
    return [{"role": "user", "content": _content(parts, "user")}] if parts else []


def _result(block: JsonObject, where: str) -> JsonObject:
    content = block.get("content")
    if isinstance(content, list):
        parts = [_part(object_of(one, f"{where}.content.{n}"), f"{where}.content.{n}") for n, one in enumerate(content)]
        said = _content(parts, "tool")
    else:
        said = "" if content is None else text_of(content, f"{where}.content")
    message = {"role": "tool", "tool_call_id": text_of(block.get("tool_use_id"), f"{where}.tool_use_id"), "content": said}
    return message | ({"is_error": True} if block.get("is_error") is True else {})


def _part(block: JsonObject, where: str) -> JsonObject:
    """Return a block as a part of a chat's message."""
    match block.get("type"):
        case "text":
            return {"type": "text", "text": text_of(block.get("text"), f"{where}.text")}
        case "image":
            return {"type": "image_url", "image_url": {"url": _address(object_of(block.get("source"), f"{where}.source"), where)}}
        case _:
            raise UntranslatableError("a block that no chat has")


def _address(source: JsonObject, where: str) -> str:
    match source.get("type"):
        case "url":
            return text_of(source.get("url"), f"{where}.source.url")
        case "base64":
            kind, data = (text_of(source.get(name), f"{where}.source.{name}") for name in ("media_type", "data"))
            return f"data:{kind};base64,{data}"
        case _:
            raise UntranslatableError("a picture that only the engine has")


def _content(parts: list[JsonObject], role: str) -> str | list[JsonObject]:
    """Return the content of parts: a text, if they are all texts."""
    texts = [part["text"] for part in parts if part["type"] == "text"]
    return joined_texts(role, texts) if len(texts) == len(parts) else parts


def _stops(body: JsonObject) -> JsonObject:
    given = body.get("stop_sequences")
    if not given and isinstance(given, list | None):
        return {}
    return {"stop": [text_of(stop, f"stop_sequences.{n}") for n, stop in enumerate(list_of(given, "stop_sequences"))]}


def _tools(body: JsonObject) -> JsonObject:
    """Return tools and their choice. A choice without tools to choose from says nothing."""
    tools = [_tool(object_of(tool, f"tools.{n}"), f"tools.{n}") for n, tool in enumerate(list_of(body.get("tools") or [], "tools"))]
    return {"tools": tools} | _choice(body.get("tool_choice")) if tools else {}


def _tool(tool: JsonObject, where: str) -> JsonObject:
    if tool.get("type") not in (None, "custom"):
        raise UntranslatableError("a tool that the engine runs")
    function = {"name": text_of(tool.get("name"), f"{where}.name")}
    function |= {name: tool[name] for name in ("description", "strict") if tool.get(name) is not None}
    return {"type": "function", "function": function | {"parameters": object_of(tool.get("input_schema"), f"{where}.input_schema")}}


def _choice(given: Any) -> JsonObject:
    if given is None:
        return {}
    choice = object_of(given, "tool_choice")
    kind = choice.get("type")
    if kind == "tool":
        chosen: Any = {"type": "function", "function": {"name": text_of(choice.get("name"), "tool_choice.name")}}
    elif isinstance(kind, str) and kind in _CHOICES:
        chosen = _CHOICES[kind]
    else:
        raise WrongRequestError("not one of auto, any, tool, none", "tool_choice.type")
    return {"tool_choice": chosen} | ({"parallel_tool_calls": False} if choice.get("disable_parallel_tool_use") is True else {})


def _format(body: JsonObject) -> JsonObject:
    """Return what the answer has to be like. Efforts that chat completions do not name are left out."""
    config = object_of(body.get("output_config") or {}, "output_config")
    wanted = config.get("format") or body.get("output_format")
    effort = {"reasoning_effort": config["effort"]} if config.get("effort") in _EFFORTS else {}
    if not wanted:
        return effort
    schema = object_of(object_of(wanted, "output_config.format").get("schema"), "output_config.format.schema")
    return effort | {"response_format": {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}}}


def _whose(body: JsonObject) -> JsonObject:
    """Return whose request it is: the user, and the session where the metadata or the user's id names one."""
    metadata = object_of(body.get("metadata") or {}, "metadata")
    user = metadata.get("user_id")
    named = {name: given for name in _OWN_SESSION if isinstance(given := metadata.get(name), str) and given}
    return (_of_user(user) if isinstance(user, str) and user else {}) | named


def _of_user(user: str) -> JsonObject:
    """Return the user of an id, and the session that Claude Code writes into it: as a part of its text, or of a JSON object."""
    told = _read(user)
    if isinstance(told.get("session_id"), str):
        whose = next((one for name in ("account_uuid", "device_id") if isinstance(one := told.get(name), str) and one), None)
        return {"session_id": told["session_id"]} | ({"user": whose} if whose else {})
    session = _SESSION.search(user)
    return {"user": user} if session is None else {"user": user[: session.start()], "session_id": session[1]}


def _read(text: str) -> JsonObject:
    """Return the object that a text is; an empty one if it is none."""
    try:
        told = orjson.loads(text)
    except orjson.JSONDecodeError:
        return {}
    return told if isinstance(told, dict) else {}
