"""Tool calls: their neutral form, whether one worked, how many there were, and the tools on offer."""

from __future__ import annotations

import json
import re
from collections.abc import Container, Mapping, Sequence
from typing import Any

import orjson

from clawpipe.importers.strict_json import MAX_DEPTH, RefusedError, count_keys, may_repeat_a_key, refuse_repeated_keys
from clawpipe.messages import Message, ToolCall

_DECLARED = ("functionDeclarations", "function_declarations")
_THOUGHT = re.compile(r"\s*<think>.*?</think>", re.DOTALL)


def tagged(tag: str) -> re.Pattern[str]:
    """Finds a `tag` and what it holds: a `line` of JSON, as writers put it, which may quote the tag; else `text` up to its end."""
    return re.compile(rf"<{tag}>(?:\n(?P<line>[^\n]*)\n|\n?(?P<text>(?:(?!<{tag}>).)*?)\n?)</{tag}>", re.DOTALL)


_CALL = re.compile(r"\n?" + tagged("tool_call").pattern, re.DOTALL)
_CUT_SHORT = re.compile(r"\n?<tool_call>\s*(?P<text>\{(?:(?!</?tool_call>).)*)\Z", re.DOTALL)  # a call without its end
_SHALLOW = 500  # objects and lists: no parser finds them nested too deeply


def tool_call(name: Any, arguments: Any, call_id: str) -> ToolCall:
    """A call in the neutral form. Arguments that are no JSON object, or not the same one to every parser because a key is given
    twice, are kept as they came, flagged: they are negatives."""
    if isinstance(arguments, dict):
        return ToolCall(call_id, str(name), json.dumps(arguments, ensure_ascii=False), not isinstance(name, str))
    text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    value = parsed_object(text)
    return ToolCall(call_id, str(name), text, not isinstance(name, str) or value is None or _repeats_a_key(text, value))


def _repeats_a_key(text: str, value: Any) -> bool:
    if isinstance(value, dict) and text.count(":") == len(value):
        return False  # one colon a key, and every key is another
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


def split_calls(said: str, number: int) -> tuple[str, list[ToolCall]]:
    """Text of a turn without the calls that it spells, and these. Who thinks of a call has not made it; one that breaks off, as
    when the tokens ran out, is malformed.

    Args:
        number: of the turn, which tells its calls from those of others.
    """
    thought = _THOUGHT.match(said)
    start = thought.end() if thought else 0
    found = [call["line"] or call["text"] or "" for call in _CALL.finditer(said, start)]
    calls = [_spelled_call(text, f"call_{number}_{place}") for place, text in enumerate(found)]
    rest = _CALL.sub("", said[start:])
    if cut := _CUT_SHORT.search(rest):
        calls.append(ToolCall(f"call_{number}_{len(calls)}", "", cut["text"], malformed=True))
        rest = rest[: cut.start()]
    return said[:start] + rest, calls


def _spelled_call(text: str, call_id: str) -> ToolCall:
    try:
        call = json.loads(text, parse_constant=_no_number)
        if not _repeats_a_key(text, call):
            return tool_call(call["name"], call.get("arguments", {}), call_id)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        pass
    return ToolCall(call_id, "", text, malformed=True)


def parsed(text: str) -> Any:
    """The JSON value that a text is; None where it is none, as with NaN, which is no JSON."""
    try:
        return json.loads(text, parse_constant=_no_number)
    except (ValueError, RecursionError):
        return None


def _no_number(name: str) -> None:
    raise ValueError(name)


def parsed_object(text: str) -> dict[str, Any] | None:
    """The JSON object that a text is, None where it is none; as `parsed` reads it, but for integers beyond 64 bits."""
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
    """Whether a tool's answer reports a failure: an `error`, its own or its content's, or `success: false`; of an answer that is no
    JSON object, none at all or one that begins with "error:". An exit code other than 0 is no failure."""
    answer = parsed_object(content)
    if answer is None:
        return not content.strip() or content.strip().lower().startswith("error:")
    inner = answer.get("content")
    inner_error = inner.get("error") if isinstance(inner, dict) else None
    return answer.get("error") is not None or inner_error is not None or answer.get("success") is False


def is_said_to_fail(answer: Mapping[str, Any]) -> bool:
    """Whether the record of a tool's answer calls it a failure, whatever the answer says."""
    flagged = any(answer.get(name) is True for name in ("is_error", "isError", "error"))
    return flagged or answer.get("status") in ("error", "failed") or answer.get("state") == "output-error"


def count_tool_calls(messages: Sequence[Message], failed: Container[int] = ()) -> tuple[int, int]:
    """How many calls were made, and how many failed: by their answers, or because what is malformed was never answered.

    Args:
        failed: indices of the answers whose records call them failures.
    """
    calls = [call for message in messages for call in message.tool_calls]
    answers = [(place, message) for place, message in enumerate(messages) if message.role == "tool"]
    malformed = [call.id for call in calls if call.malformed]
    answered = {message.tool_call_id for _, message in answers} if malformed else ()
    unheard = sum(name not in answered for name in malformed)
    return len(calls), sum(place in failed or call_failed(message.content) for place, message in answers) + unheard


def tools_on_offer(tools: Any) -> str | None:
    """JSON array of tool schemas, which come as such or spelled; None where there are none. Gemini's lists of declarations are
    one list, and Anthropic's `input_schema` is what others call `parameters`."""
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
