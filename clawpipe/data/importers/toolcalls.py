"""Tool calls of logs: split a text from them, count them and their failures, and read the tools on offer."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from clawpipe.core.conversation.messages import Message, ToolCall
from clawpipe.data.wire.arguments import ARGUMENTS, parsed
from clawpipe.data.wire.failures import UNMARKED, call_failed
from clawpipe.data.wire.spelled import spelled_call, split_tagged_calls

_DECLARED = ("functionDeclarations", "function_declarations")


def split_calls(text: str, number: int) -> tuple[str, list[ToolCall]]:
    """Split the text of a logged turn into the text without `<tool_call>` blocks, and their calls.

    Args:
        number: index of the turn, which makes the ids of its calls unique.
    """
    rest, bodies = split_tagged_calls(text)
    return rest, [spelled_call(f"call_{number}_{place}", body, ARGUMENTS) for place, body in enumerate(bodies)]


def count_tool_calls(messages: Sequence[Message], failed: Mapping[int, bool] = UNMARKED) -> tuple[int, int]:
    """Count the calls and the failed ones: failed by their results, or malformed without a result.

    Args:
        failed: whether a tool result is marked as a failure, by its index.
    """
    calls = [call for message in messages for call in message.tool_calls]
    answers = [(place, message) for place, message in enumerate(messages) if message.role == "tool"]
    malformed = [call.id for call in calls if call.malformed]
    answered = {message.tool_call_id for _, message in answers} if malformed else ()
    unheard = sum(name not in answered for name in malformed)
    return len(calls), sum(call_failed(message.content, failed.get(place)) for place, message in answers) + unheard


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
