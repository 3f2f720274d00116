"""Tool calls in a common form: parse them, count them and their failures, and read the tools on offer."""

from __future__ import annotations

import json
import re
from collections.abc import Container, Mapping, Sequence
from typing import Any

import orjson

from clawpipe.importers.strict_json import MAX_DEPTH, RefusedError, count_keys, may_repeat_a_key, refuse_repeated_keys
from clawpipe.json_types import JsonObject
from clawpipe.messages import Message, ToolCall

_DECLARED = ("functionDeclarations", "function_declarations")
_THOUGHT = re.compile(r"\s*<think>.*?</think>", re.DOTALL)


def tagged(tag: str) -> re.Pattern[str]:
    """Return a pattern for a tag: its content is a `line` of JSON, which may quote the tag, else `text` up to the end tag."""
    return re.compile(rf"<{tag}>(?:\n(?P<line>[^\n]*)\n|\n?(?P<text>(?:(?!<{tag}>).)*?)\n?)</{tag}>", re.DOTALL)


_CALL = re.compile(r"\n?" + tagged("tool_call").pattern, re.DOTALL)
_CUT_SHORT = re.compile(r"\n?<tool_call>\s*(?P<text>\{(?:(?!</?tool_call>).)*)\Z", re.DOTALL)  # a call without its end
_SHALLOW = 500  # objects and lists; so few cannot be nested too deeply for a parser


def tool_call(name: Any, arguments: Any, call_id: str) -> ToolCall:
    """Return a call in the common form. Arguments that are not a JSON object, or have a duplicate key, stay as they are; the call
    is malformed.
    """
    if isinstance(arguments, dict):
        return ToolCall(call_id, str(name), json.dumps(arguments, ensure_ascii=False), not isinstance(name, str))
    text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    value = parsed_object(text)
    return ToolCall(call_id, str(name), text, not isinstance(name, str) or value is None or _repeats_a_key(text, value))


def _repeats_a_key(text: str, value: Any) -> bool:
    if isinstance(value, dict) and text.count(":") == len(value):
        return False  # one colon for each key, and all keys differ
    data = text.encode(errors="surrogatepass")
    try:
        keys = count_keys(value, MAX_DEPTH)
    except RefusedError:
        keys = -1  # too many to count
    try:
        if may_repeat_a_key(data, keys):
            refuse_repeated_keys(data)
    except RefusedError:
        return True
    return False


def split_calls(text: str, number: int) -> tuple[str, list[ToolCall]]:
    """Split the text of a turn into the text without tool calls, and the calls. Calls inside a thought do not count; an unfinished
    call is malformed.

    Args:
        number: index of the turn, which makes the ids of its calls unique.
    """
    thought = _THOUGHT.match(text)
    start = thought.end() if thought else 0
    found = [call["line"] or call["text"] or "" for call in _CALL.finditer(text, start)]
    calls = [_spelled_call(text, f"call_{number}_{place}") for place, text in enumerate(found)]
    rest = _CALL.sub("", text[start:])
    if cut := _CUT_SHORT.search(rest):
        calls.append(ToolCall(f"call_{number}_{len(calls)}", "", cut["text"], malformed=True))
        rest = rest[: cut.start()]
    return text[:start] + rest, calls


def _spelled_call(text: str, call_id: str) -> ToolCall:
    try:
        call = json.loads(text, parse_constant=_no_number)
        if not _repeats_a_key(text, call):
            return tool_call(call["name"], call.get("arguments", {}), call_id)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        pass
    return ToolCall(call_id, "", text, malformed=True)


def parsed(text: str) -> Any:
    """Parse a JSON text; None if it is not JSON, which includes NaN."""
    try:
        return json.loads(text, parse_constant=_no_number)
    except (ValueError, RecursionError):
        return None


def _no_number(name: str) -> None:
    raise ValueError(name)


def parsed_object(text: str) -> JsonObject | None:
    """Parse a JSON object; None if the text is not one. Like `parsed`, except for integers beyond 64 bits."""
    if text.lstrip()[:1] != "{":
        return None
    value = _parsed_shallow(text) if text.count("{") + text.count("[") < _SHALLOW else parsed(text)
    return value if isinstance(value, dict) else None


def _parsed_shallow(text: str) -> Any:
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:  # the standard library takes more, such as half a surrogate pair
        return parsed(text)


def call_failed(content: str) -> bool:
    """Whether a tool result reports a failure: an `error`, also inside its content, or `success: false`; a text that is not a JSON
    object if it is empty or begins with "error:". A nonzero exit code is not a failure."""
    answer = parsed_object(content)
    if answer is None:
        return not content.strip() or content.strip().lower().startswith("error:")
    inner = answer.get("content")
    inner_error = inner.get("error") if isinstance(inner, dict) else None
    return answer.get("error") is not None or inner_error is not None or answer.get("success") is False


def is_marked_failed(answer: Mapping[str, Any]) -> bool:
    """Whether the record of a tool result marks it as a failure, whatever its content is."""
    flagged = any(answer.get(name) is True for name in ("is_error", "isError", "error"))
    return flagged or answer.get("status") in ("error", "failed") or answer.get("state") == "output-error"


def count_tool_calls(messages: Sequence[Message], failed: Container[int] = ()) -> tuple[int, int]:
    """Count the calls and the failed ones: failed by their results, or malformed without a result.

    Args:
        failed: indices of the tool results that their records mark as failures.
    """
    calls = [call for message in messages for call in message.tool_calls]
    answers = [(place, message) for place, message in enumerate(messages) if message.role == "tool"]
    malformed = [call.id for call in calls if call.malformed]
    answered = {message.tool_call_id for _, message in answers} if malformed else ()
    unheard = sum(name not in answered for name in malformed)
    return len(calls), sum(place in failed or call_failed(message.content) for place, message in answers) + unheard


def tools_on_offer(tools: Any) -> str | None:
    """Return a JSON array of tool schemas from a list or a JSON text; None if there are none. Gemini's lists of declarations are
    joined, and Anthropic's `input_schema` becomes `parameters`."""
    value = parsed(tools) if isinstance(tools, str) else tools
    if not isinstance(value, list) or not value:
        return None
    return json.dumps([schema for tool in value for schema in _schemas(tool)], ensure_ascii=False)


def _schemas(tool: Any) -> list[Any]:
    if not isinstance(tool, dict):
        return [tool]
    declared = next((tool[name] for name in _DECLARED if isinstance(tool.get(name), list)), None)
    if declared is not None and len(tool) == 1:
        return declared
    if "input_schema" in tool and "parameters" not in tool:
        return [{"parameters" if name == "input_schema" else name: value for name, value in tool.items()}]
    return [tool]
