"""Read rows of clawpipe's `trajectories` dataset, as JSON Lines or Parquet; all columns are kept."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, get_args

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.core.conversation.messages import Message, Role, ToolCall
from clawpipe.data.importers.fields import Fields, as_list
from clawpipe.data.importers.record import Conversation, Kind, Status, Tokens, all_main, first_request
from clawpipe.data.importers.strict_json import RefusedError
from clawpipe.data.wire.arguments import parsed

_LISTS = ("messages", "token_ids", "loss_mask", "logprobs", "turns")


def is_native(record: JsonObject) -> bool:
    return isinstance(record.get("trajectory_id"), str) and all(isinstance(record.get(name), list) for name in _LISTS)


def read_native(record: JsonObject) -> Conversation:
    """Read a trajectory. `row` holds every column, also those of later versions.

    Raises:
        RefusedError: a column is missing or has another type.
    """
    fields = Fields(record)
    messages = tuple(_message(Fields(part, "messages[].")) for part in as_list(fields.take("messages", list), "messages"))
    status = fields.take("status", str, default=None)
    extra = parsed(fields.take("extra", str, default="{}"))
    turns = list(as_list(fields.take("turns", list), "turns"))
    return Conversation(
        messages,
        _kinds(messages, fields.take("kinds", list, default=[turn.get("kind") for turn in turns])),
        first_request(messages),
        session=fields.take("session_id", str, default=None),
        user=fields.take("user_id", str, default=None),
        group=fields.take("group_id", str),
        model=fields.take("model", str, default=None),
        tokens=_tokens(fields),
        extra=extra if isinstance(extra, dict) else {},
        status=status if status in get_args(Status) else None,
        tool_calls=fields.take("tool_calls", int, default=None),
        tool_errors=fields.take("tool_errors", int, default=None),
        tools=fields.take("tools", str, default=None),
        row=record,
    )


def _message(fields: Fields) -> Message:
    role = fields.take("role", str)
    if role not in get_args(Role):
        raise RefusedError("messages[].role: not system, user, assistant or tool")
    calls = as_list(fields.take("tool_calls", list, default=[]), "messages[].tool_calls")
    return Message(
        role,  # type: ignore[arg-type]
        fields.take("content", str),
        tuple(_call(Fields(call, "messages[].tool_calls[].")) for call in calls),
        fields.take("tool_call_id", str, default=None),
        fields.take("name", str, default=None),
    )


def _call(fields: Fields) -> ToolCall:
    return ToolCall(*(fields.take(name, str) for name in ("id", "name", "arguments")), malformed=fields.take("malformed", bool))


def _kinds(messages: Sequence[Message], kinds: Sequence[Any]) -> tuple[Kind, ...]:
    """Return the kinds of the assistant messages; those before the first sampled turn are context."""
    replies = len(all_main(messages))
    if len(kinds) > replies or any(kind not in get_args(Kind) for kind in kinds):
        raise RefusedError("kinds: not one of main or side an assistant message")
    return (*("side" for _ in range(replies - len(kinds))), *kinds)


def _tokens(fields: Fields) -> Tokens | None:
    if fields.take("tokens", str) != "recorded":
        return None
    ids, mask, logprobs = (fields.take(name, list) for name in ("token_ids", "loss_mask", "logprobs"))
    if not len(ids) == len(mask) == len(logprobs):
        raise RefusedError("streams differ in length")
    if not all(type(token) is int and 0 <= token < 2**31 for token in ids) or not all(type(kept) is bool for kept in mask):
        raise RefusedError("token_ids, loss_mask: not token ids and truth values")
    if not all(type(value) in (int, float) for value in logprobs):
        raise RefusedError("logprobs: not one number a token")
    policy = fields.take("policy_version", str, default=None)
    return Tokens(ids, mask, logprobs, temperature=fields.take("temperature", int, float, default=None), policy_version=policy)
