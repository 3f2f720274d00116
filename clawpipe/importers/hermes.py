"""Hermes and MonoClaw: batch rows, interactive samples (`trajectory_samples`, `failed_trajectories`), and their writer.

A conversation is a list of {from, value}: system, human, gpt and tool. A gpt value holds an optional `<think>` block, text,
and one `<tool_call>` block a call; a tool value holds one `<tool_response>` block a call of the turn before. Reasoning stays
in the text, in its tags: it is what the model said. Whether a tool call worked follows the batch runner's own rule
(`call_failed`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

from clawpipe.importers.record import Conversation, Fields, Judgement, all_main, as_list, first_request, tool_call
from clawpipe.importers.strict import RefusedError
from clawpipe.messages import Message, Role, ToolCall

_ROLES: dict[str, Role] = {"system": "system", "human": "user", "gpt": "assistant", "tool": "tool"}
_CALL = re.compile(r"\n?<tool_call>\n?(.*?)\n?</tool_call>", re.DOTALL)
_RESPONSE = re.compile(r"<tool_response>\n?(.*?)\n?</tool_response>", re.DOTALL)


def is_hermes(record: dict[str, Any]) -> bool:
    return isinstance(record.get("conversations"), list)


def read_hermes(record: dict[str, Any]) -> Conversation:
    """A batch row or an interactive sample.

    Raises:
        RefusedError: it is no conversation of this form.
    """
    fields = Fields(record)
    messages = tuple(_messages(fields.take("conversations", list)))
    completed, partial = fields.take("completed", bool, default=None), fields.take("partial", bool, default=None)
    metadata = fields.take("metadata", dict, default={})
    model = fields.take("model", str, default=metadata.get("model"))
    errors = fields.take("tool_error_counts", dict, default={})
    failed = sum(call_failed(message.content) for message in messages if message.role == "tool")
    evidence = {"completed": completed, "partial": partial, "failed_tool_calls": failed}
    outcome = () if completed is None else (_outcome(completed, bool(partial), evidence),)
    extra = fields.rest | {"metadata": metadata, "completed": completed, "partial": partial, "tool_error_counts": errors}
    return Conversation(
        messages, all_main(messages), first_request(messages), model=model, judgements=outcome, extra=_present(extra)
    )


def call_failed(content: str) -> bool:
    """Whether a tool's answer reports a failure: an `error`, its own or its content's, or `success: false`; of an answer that is no
    JSON object, none at all or one that begins with "error:". An exit code other than 0 is no failure."""
    try:
        answer = json.loads(content)
    except (ValueError, RecursionError):
        answer = None
    if not isinstance(answer, dict):
        return not content.strip() or content.strip().lower().startswith("error:")
    inner = answer.get("content")
    inner_error = inner.get("error") if isinstance(inner, dict) else None
    return answer.get("error") is not None or inner_error is not None or answer.get("success") is False


def write_hermes(messages: Sequence[Message]) -> list[dict[str, str]]:
    """The `conversations` of a row, which `read_hermes` reads back."""
    turns: list[dict[str, str]] = []
    for message in messages:
        value = _written(message)
        if message.role == "tool" and turns and turns[-1]["from"] == "tool":
            turns[-1]["value"] += f"\n{value}"
        else:
            turns.append({"from": next(name for name, role in _ROLES.items() if role == message.role), "value": value})
    return turns


def _outcome(completed: bool, partial: bool, evidence: dict[str, Any]) -> Judgement:
    success = completed and not partial
    reason = "completed" if success else "stopped on invalid tool calls" if partial else "not completed"
    return Judgement(float(success), "custom", success, reason=reason, evidence=evidence)


def _messages(conversations: list[Any]) -> Iterator[Message]:
    pending: list[ToolCall] = []
    for number, part in enumerate(as_list(conversations, "conversations")):
        fields = Fields(part, "conversations[].")
        speaker, value = fields.take("from", str), fields.take("value", str)
        if speaker not in _ROLES:
            raise RefusedError("conversations[].from: not system, human, gpt or tool")
        if speaker == "tool":
            yield from _answers(value, pending)
        elif speaker == "gpt":
            text, pending = _spoken(value, number)
            yield Message("assistant", text, tuple(pending))
        else:
            yield Message(_ROLES[speaker], value)


def _spoken(value: str, number: int) -> tuple[str, list[ToolCall]]:
    """Text of a turn without its calls, and these."""
    calls = [_call(text, f"call_{number}_{place}") for place, text in enumerate(_CALL.findall(value))]
    return _CALL.sub("", value), calls


def _call(text: str, call_id: str) -> ToolCall:
    try:
        call = json.loads(text)
        return tool_call(call["name"], call.get("arguments", {}), call_id)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return ToolCall(call_id, "", text, malformed=True)


def _answers(value: str, calls: Sequence[ToolCall]) -> Iterator[Message]:
    """Tool results, matched to the calls of the turn before by their order: ids of the writer are not in the calls."""
    blocks = _RESPONSE.findall(value) or [value]
    for place, block in enumerate(blocks):
        call = calls[place] if place < len(calls) else None
        name, content = _answer(block)
        yield Message("tool", content, (), call.id if call else None, call.name if call and call.name else name)


def _answer(block: str) -> tuple[str | None, str]:
    try:
        answer = json.loads(block)
        content, name = answer["content"], answer.get("name")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None, block
    return name, content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)


def _written(message: Message) -> str:
    if message.role == "tool":
        body = {"tool_call_id": message.tool_call_id, "name": message.name or "unknown", "content": _parsed(message.content)}
        return f"<tool_response>\n{json.dumps(body, ensure_ascii=False)}\n</tool_response>"
    calls = "".join(f"\n<tool_call>\n{_written_call(call)}\n</tool_call>" for call in message.tool_calls)
    return message.content + calls


def _written_call(call: ToolCall) -> str:
    if call.malformed:
        return call.arguments
    return json.dumps({"name": call.name, "arguments": json.loads(call.arguments)}, ensure_ascii=False)


def _parsed(content: str) -> Any:
    """What begins like JSON is written as JSON, as the batch runner does."""
    try:
        return json.loads(content) if content[:1] in ("{", "[") else content
    except (ValueError, RecursionError):
        return content


def _present(extra: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in extra.items() if value not in (None, {})}
