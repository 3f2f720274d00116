"""Redact secrets and personal data. Names of sessions and users stay: `forget` finds a person's rows by them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, TypeVar

import orjson
from msgspec.structs import replace as replace_fields

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.core.conversation.messages import Message, ToolCall
from clawpipe.data.importers.record import Conversation, Judgement, Preference, Prompt
from clawpipe.data.importers.untaught import silenced
from clawpipe.data.privacy.redact import Redactor
from clawpipe.data.privacy.values import distinct, redact_values

Beside = TypeVar("Beside", Preference, Prompt)
_HIDDEN = "[REDACTED:"  # prefix of the placeholder of a secret


class Cleaner:
    """Redacts records in batches. `found` counts how often each rule applied."""

    def __init__(self, redact: Redactor) -> None:
        self._redact = redact
        self.found = Counter[str]()

    def conversations(self, conversations: Sequence[Conversation]) -> list[tuple[Conversation, bool]]:
        """Return each conversation without secrets, and whether its messages held one; then its tokens are removed, too."""
        redacted = self._redact.messages([conversation.messages for conversation in conversations])
        self.found += redacted.found
        rest = iter(self.values([_rest(conversation) for conversation in conversations if _has_other_texts(conversation)]))
        return [
            (_rebuilt(conversation, messages, changed, next(rest) if _has_other_texts(conversation) else None), changed)
            for conversation, messages, changed in zip(conversations, redacted.conversations, redacted.changed, strict=True)
        ]

    def pairs(self, pairs: Sequence[Preference]) -> list[Preference]:
        redacted = self._redact.messages([part for pair in pairs for part in (pair.prompt, pair.chosen, pair.rejected)])
        self.found += redacted.found
        parts = iter(redacted.conversations)
        sides = ("prompt", "chosen", "rejected")
        return [replace(pair, **{side: _distinct(next(parts)) for side in sides}, **fields) for pair, fields in self._beside(pairs)]

    def prompts(self, prompts: Sequence[Prompt]) -> list[Prompt]:
        redacted = self._redact.messages([prompt.messages for prompt in prompts])
        self.found += redacted.found
        cleaned = zip(self._beside(prompts), redacted.conversations, strict=True)
        return [replace(prompt, messages=_distinct(messages), **beside) for (prompt, beside), messages in cleaned]

    def _beside(self, records: Sequence[Beside]) -> list[tuple[Beside, JsonObject]]:
        """Return each record with its redacted fields besides the messages."""
        rest = self.values([{"extra": dict(record.extra), "tools": _parsed(record.tools)} for record in records])
        return [(record, fields | {"tools": _as_json(fields["tools"])}) for record, fields in zip(records, rest, strict=True)]

    def judgements(self, judgements: Sequence[Judgement]) -> list[Judgement]:
        rest = self.values([_texts_of(one) for one in judgements])
        return [_judgement(one, *texts) for one, texts in zip(judgements, rest, strict=True)]

    def values(self, values: Sequence[Any]) -> list[Any]:
        """Redact the texts of JSON values, including field names."""
        result = redact_values(self._redact, values)
        self.found += result.found
        return result.values


def _has_other_texts(conversation: Conversation) -> bool:
    return bool(conversation.extra or conversation.judgements) or conversation.tools is not None


def _rest(conversation: Conversation) -> JsonObject:
    judgements = [_texts_of(one) for one in conversation.judgements]
    return {"extra": dict(conversation.extra), "tools": _parsed(conversation.tools), "judgements": judgements}


def _rebuilt(conversation: Conversation, messages: tuple[Message, ...], changed: bool, rest: JsonObject | None) -> Conversation:
    if rest is None:
        return _with_messages(conversation, messages) if changed else conversation
    judgements = [_judgement(one, *texts) for one, texts in zip(conversation.judgements, rest["judgements"], strict=True)]
    cleaned = replace(conversation, judgements=tuple(judgements), tools=_as_json(rest["tools"]), extra=rest["extra"])
    return _with_messages(cleaned, messages) if changed else cleaned


def _with_messages(conversation: Conversation, messages: tuple[Message, ...]) -> Conversation:
    """Replace the messages and remove the tokens, which no longer match; empty turns become side turns."""
    return silenced(replace(conversation, messages=_distinct(messages), tokens=None))[0]


def _parsed(tools: str | None) -> Any:
    """Parse the tools, because JSON is redacted value by value: a rule may match a quote."""
    return None if tools is None else orjson.loads(tools)


def _as_json(tools: Any) -> str | None:
    return None if tools is None else orjson.dumps(tools).decode()


def _texts_of(one: Judgement) -> list[Any]:
    return [one.reason, list(one.hints), dict(one.evidence)]


def _judgement(one: Judgement, reason: str, hints: list[str], evidence: JsonObject) -> Judgement:
    return replace(one, reason=reason, hints=tuple(hints), evidence=evidence)


def _distinct(messages: Sequence[Message]) -> tuple[Message, ...]:
    """Number argument names that redaction has made equal."""
    return tuple(map(_distinct_arguments, messages))


def _distinct_arguments(message: Message) -> Message:
    calls = tuple(_distinct_names(call) if _HIDDEN in call.arguments else call for call in message.tool_calls)
    return message if calls == message.tool_calls else replace_fields(message, tool_calls=calls)


def _distinct_names(call: ToolCall) -> ToolCall:
    try:
        numbered = json.loads(call.arguments, object_pairs_hook=distinct)
        same = call.malformed or numbered == json.loads(call.arguments)
    except (ValueError, RecursionError):
        return call
    return call if same else replace_fields(call, arguments=json.dumps(numbered, ensure_ascii=False))
