"""Arguments of tool calls: read whatever an API or a model wrote for them, write them, and compare calls.

A call's arguments are a JSON object. Engines write nothing, blanks or null for a tool without parameters, and some clients encode
the object a second time; both are read as what was meant. Anything else is kept as it is, and the call is malformed. The field that
holds them has another name in other libraries: `args` in LangChain, `input` in Anthropic's, `parameters` in Llama's calls.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, NoReturn

import orjson

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.core.conversation.messages import ToolCall

_SHALLOW = 500  # objects and lists; so few cannot be nested too deeply for a parser
_ENCODED = 3  # times that an object may be encoded
_EMPTY = "{}"
ARGUMENTS = ("arguments", "parameters", "args", "input")  # fields of a call with its arguments
_ABOUT = ("name", "id", "type", "index", "call_id", "tool_call_id", "function")  # its other fields
_NOTHING = (None, "", {}, [])


def tool_call(name: Any, arguments: Any, call_id: str) -> ToolCall:
    """Return the call of a tool. Its arguments keep their spelling and the order of their keys.

    It is malformed if the name is no text, or the arguments are no JSON object, have a duplicate key or half a surrogate pair.
    """
    text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    meant = text if isinstance(arguments, dict) else _object_text(text)
    return ToolCall(call_id, str(name), text if meant is None else meant, not isinstance(name, str) or meant is None)


def named_call(call: JsonObject, call_id: str, names: Sequence[str] = ARGUMENTS) -> ToolCall:
    """Return the call that an object with a `name` describes. One of `names` holds its arguments, which it may lack.

    If none is there, but other fields are that say something, these may be its arguments: the call is malformed, and keeps them.
    """
    given = [call[name] for name in names if call.get(name) is not None]
    others = {name: value for name, value in call.items() if name not in (*names, *_ABOUT) and value not in _NOTHING}
    if others and not given:
        return ToolCall(call_id, str(call.get("name")), json.dumps(others, ensure_ascii=False), malformed=True)
    said = [one for one in given if one not in _NOTHING] or given or [None]
    return tool_call(call.get("name"), said[0], call_id)


def custom_call(name: Any, given: Any, call_id: str) -> ToolCall:
    """Return the call of a custom tool, which takes a text and no object: the text is its argument `input`."""
    return tool_call(name, {"input": given} if isinstance(given, str) else given, call_id)


def listed_calls(message: JsonObject, number: int = 0) -> list[ToolCall]:
    """Return the calls of a message in the form of the chat API: those of `tool_calls`, and the one of the older `function_call`.

    Args:
        number: index of the message, which makes the ids of unnamed calls unique.
    """
    given = message.get("tool_calls") or []
    listed = parsed(given) if isinstance(given, str) else given
    if not isinstance(listed, list):
        return [ToolCall(f"call_{number}_0", "", str(given), malformed=True)]
    single = message.get("function_call")
    calls = [call for call in (*listed, single) if isinstance(call, dict)]
    return [_listed(call, f"call_{number}_{place}") for place, call in enumerate(calls)]


def _listed(call: JsonObject, unnamed: str) -> ToolCall:
    call_id = call["id"] if isinstance(call.get("id"), str) else unnamed
    if isinstance(custom := call.get("custom"), dict):
        return custom_call(custom.get("name"), custom.get("input"), call_id)
    if not isinstance(function := call.get("function"), dict):
        return named_call(call, call_id)
    return named_call({name: call[name] for name in ARGUMENTS if name in call} | function, call_id)


def arguments_of(call: ToolCall) -> JsonObject:
    """Return the arguments of a call; empty if they are no JSON object."""
    found = None if call.malformed else parsed(call.arguments)
    return found if isinstance(found, dict) else {}


def neutral_arguments(arguments: JsonObject) -> str:
    """Return a JSON object as text, its keys in the order in which they were written.

    Raises:
        ValueError: JSON or UTF-8 cannot express a value (NaN, an infinity, bytes, half a surrogate pair), or nesting is too deep.
    """
    try:
        text = json.dumps(arguments, ensure_ascii=False, allow_nan=False)
        text.encode()
    except (TypeError, ValueError, RecursionError):
        raise ValueError("not expressible in JSON") from None
    return text


def comparable(call: ToolCall) -> tuple[str, str]:
    """Return name and arguments of a call in a form that is equal for equal calls, as `comparable_json` compares them."""
    try:
        return call.name, call.arguments if call.malformed else comparable_json(json.loads(call.arguments))
    except (ValueError, RecursionError):  # who made the call did not say that it is malformed
        return call.name, call.arguments


def comparable_json(value: Any) -> str:
    """Return a text that is equal for equal JSON values, in which the order of keys does not count. Numbers are compared by their
    size: 2.0 is 2, but neither true is 1 nor "2" is 2."""
    plain = _plain(value)
    try:
        return orjson.dumps(plain, option=orjson.OPT_SORT_KEYS).decode()
    except TypeError:  # half a surrogate pair, or a number beyond 64 bits
        return json.dumps(plain, sort_keys=True)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _plain(one) for name, one in value.items()}
    if isinstance(value, list):
        return [_plain(one) for one in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def parsed(text: str) -> Any:
    """Parse a JSON text; None if it is not JSON, which includes NaN."""
    try:
        return json.loads(text, parse_constant=_no_number)
    except (ValueError, RecursionError):
        return None


def parsed_object(text: str) -> JsonObject | None:
    """Parse a JSON object; None if the text is not one. Like `parsed`, except for integers beyond 64 bits."""
    if text.lstrip()[:1] != "{":
        return None
    value = _parsed_shallow(text) if text.count("{") + text.count("[") < _SHALLOW else parsed(text)
    return value if isinstance(value, dict) else None


def repeats_a_key(text: str, value: Any) -> bool:
    """Whether an object in a JSON text has a duplicate key. `value` is what the text says."""
    if isinstance(value, dict) and text.count(":") == len(value):
        return False  # one colon for each key, and all keys differ
    try:
        json.loads(text, object_pairs_hook=_distinct)
    except (ValueError, RecursionError):
        return True
    return False


def _object_text(text: str) -> str | None:
    """Return the text of the object that is meant; None if it is none."""
    for _ in range(_ENCODED):
        if text.strip() in ("", "null"):
            return _EMPTY
        value = parsed_object(text)
        if value is not None:
            return text if _is_expressible(text, value) and not repeats_a_key(text, value) else None
        inner: Any = parsed(text)
        if not isinstance(inner, str):
            return None
        text = inner
    return None


def _is_expressible(text: str, value: JsonObject) -> bool:
    """Whether UTF-8 can express the value of a JSON text, in which half a surrogate pair may be spelled."""
    try:
        return "\\u" not in text or bool(neutral_arguments(value))
    except ValueError:
        return False


def _parsed_shallow(text: str) -> Any:
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:  # the standard library takes more, such as half a surrogate pair
        return parsed(text)


def _distinct(pairs: list[tuple[str, Any]]) -> JsonObject:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("key given twice")
    return found


def _no_number(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")
