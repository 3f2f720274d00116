"""OpenAI chat JSON Lines: messages with tools and tool calls, logged requests with their responses, exported sessions.

    {"messages": [...], "tools": [...]}                                fine-tuning rows, sessions (with "id" or "session_id")
    {"request": {"messages": ...}, "response": {"choices": [...]}}     what a proxy logs; `messages` and `choices` side by side too

An assistant message of weight 0 is a side turn. Token ids and log-probs are taken where the engine gave both
(`prompt_token_ids`, and a choice's `token_ids` and `logprobs`); anything less is text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any, get_args

from clawpipe.importers.record import Conversation, Fields, Kind, Tokens, all_main, as_list, first_request, tool_call
from clawpipe.importers.strict import RefusedError
from clawpipe.messages import Message, Role, ToolCall

_ROLES = {role: role for role in get_args(Role)} | {"developer": "system", "function": "tool"}
_SESSION, _USER = ("session_id", "conversation_id", "id"), ("user", "user_id")
_SIDE = ("heartbeat", "memory", "cron", "side")
_INNER_THOUGHT = re.compile(r"\s*<think>")


def is_chat(record: dict[str, Any]) -> bool:
    request = record.get("request")
    return isinstance(record.get("messages"), list) or (isinstance(request, dict) and isinstance(request.get("messages"), list))


def read_chat(record: dict[str, Any]) -> Conversation:
    """A row of chat messages, with the response where it is logged apart.

    Raises:
        RefusedError: it is no conversation.
    """
    fields = Fields(record)
    request = Fields(fields.take("request", dict, default={}), "request.")
    response = Fields(fields.take("response", dict, default={}), "response.")
    given = fields.take("messages", list, default=None) or request.take("messages", list)
    choice = _choice(fields, response)
    if "message" in choice:
        given = [*given, {"role": "assistant"} | choice["message"]]
    messages = tuple(_message(part, number) for number, part in enumerate(as_list(given, "messages")))
    kinds = _kinds(messages, given, fields.take("turn_type", str, default="main"))
    parts = (fields, request, response)
    session, user = _first(parts, _SESSION), _first(parts, _USER)
    model = _first((response, request, fields), ("model",))
    tokens = _tokens(choice, _ids((fields, response), "prompt_token_ids"))
    extra = fields.rest | {name: part.rest for name, part in (("request", request), ("response", response)) if part.rest}
    return Conversation(
        messages, kinds, first_request(messages), session=session, user=user, model=model, tokens=tokens, extra=extra
    )


def read_message(part: dict[str, Any], number: int = 0) -> Message:
    """One message in the API's form. `number` tells unnamed calls apart.

    Raises:
        RefusedError: no such role, or fields of another type.
    """
    fields = Fields(part, "messages[].")
    role = fields.take("role", str)
    if role not in _ROLES:
        raise RefusedError("messages[].role: not system, user, assistant or tool")
    calls = tuple(_calls(fields, number))
    content = _with_thought(_text(fields.take("content", str, list, default="")), fields)
    return Message(
        _ROLES[role],  # type: ignore[arg-type]
        content,
        calls if role == "assistant" else (),
        fields.take("tool_call_id", str, default=None),
        fields.take("name", str, default=None) if role in ("tool", "function") else None,
    )


_message = read_message


def write_chat(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """The `messages` of a row, which `read_chat` reads back."""
    return [_written(message) for message in messages]


def _written(message: Message) -> dict[str, Any]:
    row: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.tool_calls:
        row["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in message.tool_calls
        ]
    return row | {name: value for name in ("tool_call_id", "name") if (value := getattr(message, name)) is not None}


def _calls(fields: Fields, number: int) -> Iterator[ToolCall]:
    for place, call in enumerate(as_list(fields.take("tool_calls", list, default=[]), "messages[].tool_calls")):
        function = call.get("function")
        function = function if isinstance(function, dict) else call
        call_id = call.get("id")
        yield tool_call(
            function.get("name"), function.get("arguments", {}), call_id if isinstance(call_id, str) else f"call_{number}_{place}"
        )


def _text(content: str | list[Any]) -> str:
    """Texts of the parts; an image, sound or file is kept as a reference in its place."""
    if isinstance(content, str):
        return content
    return "".join(_part(part) for part in as_list(content, "messages[].content"))


def _part(part: dict[str, Any]) -> str:
    if isinstance(part.get("text"), str):
        return part["text"]
    kind = str(part.get("type", "unknown"))
    held = part.get(kind, part)
    reference = held.get("url") or held.get("file_id") or held.get("id") if isinstance(held, dict) else held
    return f"[{kind}: {reference}]"


def _with_thought(content: str, fields: Fields) -> str:
    """Reasoning that came in a field of its own stands before the text in its tags, as models write it."""
    thought = fields.take("reasoning_content", str, default=None) or fields.take("reasoning", str, default=None)
    return f"<think>\n{thought}\n</think>\n{content}" if thought and not _INNER_THOUGHT.match(content) else content


def _kinds(messages: Sequence[Message], given: Sequence[dict[str, Any]], turn_type: str) -> tuple[Kind, ...]:
    all_main(messages)
    side = turn_type in _SIDE
    spoken = [part for message, part in zip(messages, given, strict=True) if message.role == "assistant"]
    return tuple("side" if side or part.get("weight") == 0 else "main" for part in spoken)


def _choice(fields: Fields, response: Fields) -> dict[str, Any]:
    """The first of the response's choices."""
    choices = fields.take("choices", list, default=None) or response.take("choices", list, default=[])
    return next(as_list(choices, "choices"), {})


def _tokens(choice: dict[str, Any], prompt: list[int] | None) -> Tokens | None:
    """Ids and log-probs of a turn, where all of them are there."""
    ids = choice.get("token_ids")
    logprobs = choice.get("logprobs")
    entries = logprobs.get("content") if isinstance(logprobs, dict) else None
    if not prompt or not isinstance(ids, list) or not isinstance(entries, list):
        return None
    values = [entry.get("logprob") if isinstance(entry, dict) else None for entry in entries]
    if len(ids) != len(values) or not all(isinstance(value, int | float) for value in values):
        raise RefusedError("choices[].logprobs: not one number a token")
    before = len(prompt)
    return Tokens([*prompt, *ids], [False] * before + [True] * len(ids), [0.0] * before + values)  # type: ignore[list-item]


def _ids(parts: Sequence[Fields], name: str) -> list[int] | None:
    return next((found for part in parts if (found := part.take(name, list, default=None))), None)


def _first(parts: Sequence[Fields], names: Sequence[str]) -> str | None:
    """The first of `names` that any part has."""
    found = (part.take(name, str, int, default=None) for part in parts for name in names)
    return next((str(value) for value in found if value is not None), None)


def spelled(value: Any) -> str:
    """A JSON value as the text of a column."""
    return json.dumps(value, ensure_ascii=False, sort_keys=True)
