"""Answers of `/v1/responses`, as an engine gives them: read as those of a chat."""

from __future__ import annotations

from typing import Any

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.data.capture.records import Answer
from clawpipe.data.wire.dialects.fields import UntranslatableError
from clawpipe.data.wire.dialects.responses_in import messages_of, text_of_parts
from clawpipe.data.wire.texts import GrowingText
from clawpipe.serve.gateway.answers import Collected

_LAST = ("response.completed", "response.incomplete", "response.failed", "response.cancelled", "error")
_FAILED = ("failed", "cancelled")
_DELTAS = {"response.output_text.delta": "content", "response.function_call_arguments.delta": "arguments"}  # and what grows


class CollectedResponse(Collected):
    """The answer of one response, whole or as its events come.

    Attributes:
        over: whether the last event has come.
    """

    has_last_event = True

    def __init__(self) -> None:
        super().__init__()
        self._items: dict[int, Any] = {}
        self._grown: dict[tuple[int, str], GrowingText] = {}  # fields of items, as they come
        self._reason: str | None = None

    def add(self, body: JsonObject) -> None:
        """Add a whole response or one event."""
        kind, response = body.get("type"), body.get("response")
        self.over = self.over or kind in _LAST
        self.failed = self.failed or kind == "error" or bool(body.get("error"))
        if isinstance(response, dict):
            self._add_response(response, kind in _LAST)
        elif isinstance(kind, str):
            self._add_part(kind, body)
        else:
            self._add_response(body, is_last=True)

    def _add_response(self, body: JsonObject, is_last: bool) -> None:
        self.response_id = body["id"] if isinstance(body.get("id"), str) else self.response_id
        self.model = body["model"] if isinstance(body.get("model"), str) else self.model
        self.failed = self.failed or body.get("status") in _FAILED or bool(body.get("error"))
        if is_last:
            self.response = body
            output = body.get("output")
            if isinstance(output, list) and output:
                self._items, self._grown = dict(enumerate(output)), {}
            self._finish(body)

    def _add_part(self, kind: str, event: JsonObject) -> None:
        """Add a part of an item, for the case that the last event never comes."""
        place, item, delta = event.get("output_index"), event.get("item"), event.get("delta")
        if not isinstance(place, int):
            return
        if isinstance(item, dict):
            self._items[place] = {**item}
            self._grown = {key: text for key, text in self._grown.items() if key[0] != place}
        elif isinstance(delta, str) and place in self._items and kind in _DELTAS:
            self._grow(place, _DELTAS[kind], delta)

    def _grow(self, place: int, name: str, delta: str) -> None:
        if (place, name) not in self._grown:
            begun = self._items[place].get(name)
            self._grown[place, name] = GrowingText(_quiet_content(begun) if name == "content" else str(begun or ""))
        self._grown[place, name].add(delta)

    def _whole(self) -> list[Any]:
        """Return the items in their order, with what has come of them."""
        grown: dict[int, JsonObject] = {}
        for (place, name), text in self._grown.items():
            grown.setdefault(place, {})[name] = str(text)
        return [item | grown[place] if place in grown else item for place, item in sorted(self._items.items())]

    def _finish(self, response: JsonObject) -> None:
        given = response.get("usage")
        usage = given if isinstance(given, dict) else {}
        self.usage = {
            name: usage[own]
            for name, own in (("prompt_tokens", "input_tokens"), ("completion_tokens", "output_tokens"), ("total_tokens",) * 2)
            if own in usage
        } or None
        self._reason = self._reason_of(response)

    def _reason_of(self, response: JsonObject) -> str | None:
        """Return the finish reason that a chat would have; None if the response did not finish."""
        status, details = response.get("status", "completed"), response.get("incomplete_details")
        if status == "incomplete":
            filtered = isinstance(details, dict) and details.get("reason") == "content_filter"
            return "content_filter" if filtered else "length"
        calls = any(isinstance(one, dict) and one.get("type") == "function_call" for one in self._items.values())
        return ("tool_calls" if calls else "stop") if status == "completed" else None

    @property
    def is_empty(self) -> bool:
        return not self._messages()

    @property
    def reasons(self) -> list[str | None]:
        """The finish reason of the one answer; None if it did not come."""
        return [self._reason]

    def uncaptured(self) -> str | None:
        """Return why there is nothing to record, or no record can hold it; None if one can."""
        try:
            messages_of(self._whole())
        except UntranslatableError as error:
            return str(error)
        return super().uncaptured()

    def answers(self, with_tokens: bool) -> list[Answer]:
        """Return the one answer."""
        [message] = self._messages()
        return [Answer({"content": ""} | message, self._reason)]

    def _messages(self) -> list[JsonObject]:
        """Return the answer's message; none if it holds what a chat cannot."""
        try:
            messages = messages_of(self._whole())
        except UntranslatableError:
            return []
        replies = [one for one in messages if one["role"] == "assistant" and one.keys() - {"role"}]
        return replies if len(messages) == 1 else []


def _quiet_content(content: Any) -> str:
    try:
        return text_of_parts(content or "", "assistant")
    except UntranslatableError:
        return ""
