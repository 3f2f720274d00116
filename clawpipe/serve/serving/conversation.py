"""Convert between OpenAI's messages and tools and clawpipe's neutral ones."""

from __future__ import annotations

import keyword
from collections.abc import Sequence

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.core.conversation.messages import Message, ToolCall, ToolSpec, WrittenFormat
from clawpipe.data.wire.arguments import tool_call
from clawpipe.data.wire.thoughts import with_thoughts
from clawpipe.serve.serving.errors import ApiError
from clawpipe.serve.serving.protocol import RequestMessage
from clawpipe.serve.serving.tools import RequestTool


def to_messages(messages: Sequence[RequestMessage]) -> list[Message]:
    """Return neutral messages. A call whose arguments are no JSON object is malformed, and is shown to the policy as it is.

    Raises:
        ApiError (400): a field that the role does not have, a result without its call.
    """
    called: dict[str, str] = {}
    neutral = []
    for index, message in enumerate(messages):
        neutral.append(_to_message(message, called, f"messages[{index}]"))
        called |= {call.id: call.name for call in neutral[-1].tool_calls}
    return neutral


def to_tools(tools: Sequence[RequestTool], tool_call_format: WrittenFormat) -> list[ToolSpec]:
    """Return neutral tools, in the given order.

    Raises:
        ApiError (400): a duplicate name, or one that the policy's tool-call format cannot write.
    """
    names = [tool.function.name for tool in tools]
    for index, name in enumerate(names):
        where = f"tools[{index}].function.name"
        if name in names[:index]:
            raise ApiError(400, f"{where}: {name!r} occurs twice", where, "invalid_value")
        if tool_call_format == "pythonic" and not all(
            part.isidentifier() and not keyword.iskeyword(part) for part in name.split(".")
        ):
            raise ApiError(
                400, f"{where}: calls are written in Python syntax, which does not allow the name {name!r}", where, "invalid_value"
            )
    return [ToolSpec(tool.function.name, tool.function.description or "", tool.function.parameters or {}) for tool in tools]


def call_body(call: ToolCall) -> JsonObject:
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}


def message_body(message: Message) -> JsonObject:
    """Return one message in OpenAI's form, as the inverse of `to_messages`."""
    body: JsonObject = {"role": message.role, "content": message.content}
    if message.tool_calls:
        body |= {"content": message.content or None, "tool_calls": [call_body(call) for call in message.tool_calls]}
    if message.role == "tool":
        body["tool_call_id"] = message.tool_call_id
    return body


def _to_message(message: RequestMessage, called: dict[str, str], where: str) -> Message:
    _check_fields(message, where)
    if message.role == "assistant":
        calls = [tool_call(call.function.name, call.function.arguments, call.id) for call in message.tool_calls or ()]
        return Message("assistant", with_thoughts(message.text, message.thoughts), tuple(calls))
    if message.role == "tool":
        return _to_result(message, called, where)
    return Message("user" if message.role == "user" else "system", message.text)


def _check_fields(message: RequestMessage, where: str) -> None:
    """Refuse fields that the message's role does not have, since none may be ignored. An assistant may have said nothing."""
    if message.content is None and message.role != "assistant":
        raise ApiError(400, f"{where}.content is missing", f"{where}.content", "missing_required_parameter")
    for field, role in (("tool_calls", "assistant"), ("refusal", "assistant"), ("tool_call_id", "tool")):
        if getattr(message, field) is not None and message.role != role:
            raise ApiError(400, f"{where}.{field}: only messages of role {role} have it", f"{where}.{field}", "invalid_value")


def _to_result(message: RequestMessage, called: dict[str, str], where: str) -> Message:
    field = f"{where}.tool_call_id"
    if message.tool_call_id is None:
        raise ApiError(400, f"{field} is missing", field, "missing_required_parameter")
    if message.tool_call_id not in called:
        raise ApiError(400, f"{field}: no earlier message calls {message.tool_call_id!r}", field, "invalid_value")
    return Message("tool", message.text, tool_call_id=message.tool_call_id, name=called[message.tool_call_id])
