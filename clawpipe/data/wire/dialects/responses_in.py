"""Requests of OpenAI's `/v1/responses` as those of chat completions.

A response's input and output are items. Items of the assistant that follow each other are one message: its text, its thoughts and
its calls. What has no place in a chat (tools that the engine runs, state that only the engine knows) cannot be translated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.data.wire.dialects.fields import (
    UnknownResponseError,
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

# By the id of a response, the conversation up to and with it; by the id of an item of its output, a list of that item.
History = Callable[[str], list[JsonObject] | None]
_LOGPROBS = "message.output_text.logprobs"  # what `include` calls log-probs
_STATE = ("conversation", "prompt", "background")  # fields that name what only the engine knows
_TEXTS = ("input_text", "output_text", "text", "summary_text", "reasoning_text")
_CHOICES = ("none", "auto", "required")
_FOREIGN_CHOICE = "a choice of tools that no chat has"
_ROLES = ("system", "developer", "user", "assistant")
_TEXT_FIELDS = ("instructions", "previous_response_id", "prompt_cache_key", "safety_identifier", "user")
_TRANSLATED = (
    *("input", "instructions", "previous_response_id", "tools", "tool_choice", "text", "reasoning", "include", "top_logprobs"),
    *("max_output_tokens", "stream_options", "store"),
)
_OF_OPENAI = (  # of hosted tools, and of how the service keeps and cuts what it is given
    *("truncation", "max_tool_calls", "prompt_cache_retention", "prompt_cache_options", "context_management", "moderation"),
    *("image", "access_programs"),
)


def chat_of_response(body: JsonObject, history: History) -> JsonObject:
    """Return a request as that of a chat completion.

    Args:
        body: the request.
        history: finds the conversation that `previous_response_id` goes on with, and the items that the input refers to.

    Raises:
        WrongRequestError: it breaks the rules of the interface.
        UntranslatableError: no chat completion can express it.
    """
    given = body.get("input")
    if not isinstance(given, str | list) or not given:
        raise WrongRequestError("neither a text nor a list of items", "input")
    if any(body.get(name) for name in _STATE):
        raise UntranslatableError("state that only the engine knows")
    messages = messages_of([{"role": "user", "content": given}] if isinstance(given, str) else _referred(given, history))
    if not messages:
        raise WrongRequestError("no message in it", "input")
    instructions = body.get("instructions")
    system = [{"role": "system", "content": instructions}] if isinstance(instructions, str) and instructions else []
    chat = without(body, (*_TRANSLATED, *_OF_OPENAI, *_STATE)) | {"messages": [*system, *_earlier(body, history), *messages]}
    _check_echoed(body)
    return chat | _tools(body) | _format(body) | _limits(body) | streaming(body)


def messages_of(items: Iterable[Any]) -> list[JsonObject]:
    """Return items as messages. Raises UntranslatableError if one has no place in a chat."""
    found: list[JsonObject] = []
    for item in items:
        if not isinstance(item, dict):
            raise UntranslatableError("an item that is no object")
        message = _message(item)
        if message["role"] == "assistant" and found and found[-1]["role"] == "assistant":
            _join(found[-1], message)
        else:
            found.append(message)
    return found


def text_of_parts(content: Any, role: str) -> str:
    """Return the text of parts. Raises UntranslatableError if one is no text."""
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    kinds = {str(part.get("type")) if isinstance(part, dict) else "" for part in parts}
    if kinds <= {*_TEXTS, "refusal"}:
        return joined_texts(role, [str(part.get("text") or part.get("refusal") or "") for part in parts])
    raise UntranslatableError("a part that is no text")


def _referred(items: list[Any], history: History) -> Iterator[Any]:
    """Yield items; in place of a reference, the item that it names. Raises UnknownResponseError if that is not kept."""
    for item in items:
        if not isinstance(item, dict) or item.get("type") != "item_reference":
            yield item
            continue
        found = history(text_of(item.get("id"), "input.id"))
        if not found:
            raise UnknownResponseError("an item that is not kept here")
        yield from found


def _check_echoed(body: JsonObject) -> None:
    """Check fields that an answer says again, and that nothing else reads."""
    for name in _TEXT_FIELDS:
        _text_or_none(body.get(name), name)
    for name, value in object_of(body.get("metadata") or {}, "metadata").items():
        text_of(value, f"metadata.{name}")
    top = body.get("top_logprobs")
    if top is not None and (isinstance(top, bool) or not isinstance(top, int)):
        raise WrongRequestError("not a number of tokens", "top_logprobs")


def _text_or_none(value: Any, where: str) -> None:
    if value is not None:
        text_of(value, where)


def _earlier(body: JsonObject, history: History) -> list[JsonObject]:
    previous = body.get("previous_response_id")
    if not previous:
        return []
    earlier = history(previous) if isinstance(previous, str) else None
    if earlier is None:
        raise UnknownResponseError("a previous response that is not kept here")
    return earlier


def _message(item: JsonObject) -> JsonObject:
    match item.get("type", "message"):
        case "message" if item.get("role") in _ROLES:
            return {"role": item["role"], "content": _content(item.get("content"), item["role"])}
        case "function_call":
            function = {"name": item.get("name"), "arguments": item.get("arguments")}
            return {"role": "assistant", "tool_calls": [{"id": item.get("call_id"), "type": "function", "function": function}]}
        case "function_call_output":
            return {"role": "tool", "tool_call_id": item.get("call_id"), "content": _content(item.get("output"), "tool")}
        case "reasoning":
            thoughts = text_of_parts(item.get("content") or item.get("summary") or "", "reasoning")
            return {"role": "assistant", "reasoning_content": thoughts} if thoughts else {"role": "assistant"}
        case _:
            raise UntranslatableError("an item that no chat has")


def _content(content: Any, role: str) -> str | list[JsonObject]:
    """Return the content of parts: a text, if they are all texts; else parts, of which some are pictures."""
    shown = [part for part in content if isinstance(part, dict)] if isinstance(content, list) and role != "assistant" else []
    if not any(part.get("type") == "input_image" for part in shown):
        return text_of_parts(content, role)
    return [_part(part) for part in content]


def _part(part: Any) -> JsonObject:
    if not isinstance(part, dict) or part.get("type") != "input_image":
        return {"type": "text", "text": text_of_parts([part], "user")}
    if not isinstance(part.get("image_url"), str):
        raise UntranslatableError("a picture that only the engine has")
    detail = {"detail": part["detail"]} if isinstance(part.get("detail"), str) else {}
    return {"type": "image_url", "image_url": {"url": part["image_url"]} | detail}


def _join(message: JsonObject, more: JsonObject) -> None:
    for name in ("content", "reasoning_content"):
        if name in more:
            message[name] = (message.get(name) or "") + more[name]
    if "tool_calls" in more:
        message["tool_calls"] = [*message.get("tool_calls", ()), *more["tool_calls"]]


def _tools(body: JsonObject) -> JsonObject:
    tools = [_tool(one) for one in list_of(body.get("tools") or [], "tools")]
    choice = body.get("tool_choice")
    if choice is None:
        return {"tools": tools} if tools else {}
    if isinstance(choice, dict):
        choice = _choice(choice)
    elif choice not in _CHOICES:
        raise WrongRequestError("not one of none, auto, required", "tool_choice")
    return {"tools": tools, "tool_choice": choice} if tools else {}


def _choice(choice: JsonObject) -> JsonObject:
    """Return a choice of tools: a function by its name, or those that may be called."""
    match choice.get("type"):
        case "function":
            return _named(choice, "tool_choice")
        case "allowed_tools":
            listed = list_of(choice.get("tools"), "tool_choice.tools")
            tools = [object_of(tool, f"tool_choice.tools.{n}") for n, tool in enumerate(listed)]
            if any(tool.get("type") != "function" for tool in tools):
                raise UntranslatableError(_FOREIGN_CHOICE)
            named = [_named(tool, f"tool_choice.tools.{n}") for n, tool in enumerate(tools)]
            return {"type": "allowed_tools", "allowed_tools": {"mode": choice.get("mode", "auto"), "tools": named}}
        case _:
            raise UntranslatableError(_FOREIGN_CHOICE)


def _named(tool: JsonObject, where: str) -> JsonObject:
    return {"type": "function", "function": {"name": text_of(tool.get("name"), f"{where}.name")}}


def _tool(tool: Any) -> JsonObject:
    kind = tool.get("type") if isinstance(tool, dict) else None
    if kind == "custom":
        raise UntranslatableError("a custom tool, which takes a text")
    if kind != "function":
        raise UntranslatableError("a tool that the engine runs")
    return {"type": "function", "function": {name: value for name, value in tool.items() if name != "type" and value is not None}}


def _format(body: JsonObject) -> JsonObject:
    """Return what the answer has to be like, and how much is thought before it."""
    text = object_of(body.get("text") or {}, "text")
    wanted = object_of(text.get("format") or {}, "text.format")
    reasoning = object_of(body.get("reasoning") or {}, "reasoning")
    found: JsonObject = {name: text_of(text[name], f"text.{name}") for name in ("verbosity",) if text.get(name) is not None}
    for name, value in reasoning.items():
        _text_or_none(value, f"reasoning.{name}")
    found |= {"reasoning_effort": reasoning["effort"]} if reasoning.get("effort") else {}
    match wanted.get("type", "text"):
        case "text":
            return found
        case "json_schema":
            schema = {name: value for name, value in wanted.items() if name != "type" and value is not None}
            return found | {"response_format": {"type": "json_schema", "json_schema": schema}}
        case "json_object":
            return found | {"response_format": {"type": "json_object"}}
        case _:
            raise WrongRequestError("not one of text, json_schema, json_object", "text.format.type")


def _limits(body: JsonObject) -> JsonObject:
    """Return how long the answer may be, and the log-probs that are asked for with it."""
    limit = body.get("max_output_tokens")
    found: JsonObject = {} if limit is None else {"max_completion_tokens": limit_of(limit, "max_output_tokens")}
    if asks_for_logprobs(body):
        found |= {"logprobs": True, "top_logprobs": body.get("top_logprobs") or 0}
    return found


def asks_for_logprobs(body: JsonObject) -> bool:
    """Whether a request says that its answer is to have log-probs."""
    include = body.get("include")
    return isinstance(include, list) and _LOGPROBS in include
