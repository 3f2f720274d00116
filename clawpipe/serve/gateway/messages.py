"""Answers of Anthropic's `/v1/messages`, as an engine gives them: read as those of a chat."""

from __future__ import annotations

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.data.capture.records import Answer
from clawpipe.data.wire.arguments import parsed_object
from clawpipe.data.wire.dialects.fields import WrongRequestError
from clawpipe.data.wire.dialects.messages_in import MALFORMED, UntranslatableError, message_of_blocks
from clawpipe.data.wire.texts import GrowingText
from clawpipe.serve.gateway.answers import Collected

_REASONS = {  # other reasons stay as they are said: nobody knows that they end a whole answer
    **dict.fromkeys(("end_turn", "stop_sequence"), "stop"),
    **dict.fromkeys(("max_tokens", "model_context_window_exceeded"), "length"),
    "tool_use": "tool_calls",
    "refusal": "content_filter",
}
_INPUT = "partial_json"
_DELTAS = {"text_delta": "text", "thinking_delta": "thinking", "input_json_delta": _INPUT}  # and the field of each
_PROMPT = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")


class CollectedMessage(Collected):
    """The answer of one message, whole or as its events come.

    Attributes:
        over: whether the last event has come.
    """

    has_last_event = True

    def __init__(self) -> None:
        super().__init__()
        self._blocks: dict[int, JsonObject] = {}
        self._grown: dict[tuple[int, str], GrowingText] = {}  # fields of blocks, as they come
        self._reason: str | None = None

    def add(self, body: JsonObject) -> None:
        """Add a whole message or one event."""
        kind, place = body.get("type"), body.get("index")
        inner = {name: value for name in ("message", "delta", "content_block") if isinstance(value := body.get(name), dict)}
        self.over = self.over or kind in ("message_stop", "error")
        self.failed = self.failed or kind == "error"
        if kind == "message":
            self._begin(body)
        elif kind == "message_start" and "message" in inner:
            self._begin(inner["message"])
        elif kind == "message_delta":
            self._finish({**inner.get("delta", {}), "usage": body.get("usage")})
        elif isinstance(place, int) and "content_block" in inner:
            self._blocks[place] = dict(inner["content_block"])
            self._grown = {key: text for key, text in self._grown.items() if key[0] != place}
        elif isinstance(place, int) and place in self._blocks and "delta" in inner:
            self._grow(place, inner["delta"])

    def _begin(self, message: JsonObject) -> None:
        self.response_id = message["id"] if isinstance(message.get("id"), str) else self.response_id
        self.model = message["model"] if isinstance(message.get("model"), str) else self.model
        content = message.get("content")
        blocks = [one for one in content if isinstance(one, dict)] if isinstance(content, list) else []
        self._blocks = dict(enumerate(blocks))
        self._finish(message)

    def _grow(self, place: int, delta: JsonObject) -> None:
        name = _DELTAS.get(str(delta.get("type")), "")
        text = delta.get(name)
        if not isinstance(text, str):
            return
        if (place, name) not in self._grown:
            self._grown[place, name] = GrowingText(str(self._blocks[place].get(name) or "") if name != _INPUT else "")
        self._grown[place, name].add(text)

    def _finish(self, said: JsonObject) -> None:
        reason, usage = said.get("stop_reason"), said.get("usage")
        self._reason = _REASONS.get(reason, reason) if isinstance(reason, str) else self._reason
        if isinstance(usage, dict):
            counted = {name: value for name, value in usage.items() if isinstance(value, int)}
            before: JsonObject = self.usage or {"prompt_tokens": 0, "completion_tokens": 0}
            prompt: int = sum(counted.get(name, 0) for name in _PROMPT) or before["prompt_tokens"]
            sampled = int(counted.get("output_tokens") or before["completion_tokens"])
            self.usage = {"prompt_tokens": prompt, "completion_tokens": sampled, "total_tokens": prompt + sampled}

    @property
    def is_empty(self) -> bool:
        return not self._blocks

    @property
    def reasons(self) -> list[str | None]:
        """The finish reason of the one answer; None if it did not come."""
        return [self._reason]

    def uncaptured(self) -> str | None:
        """Return why there is nothing to record, or no record can hold it; None if one can."""
        try:
            self._message()
        except UntranslatableError as error:
            return str(error)
        except WrongRequestError:
            return "a block that is none"
        return super().uncaptured()

    def answers(self, with_tokens: bool) -> list[Answer]:
        """Return the one answer, of which nobody says tokens."""
        return [Answer(self._message(), self._reason)]

    def _message(self) -> JsonObject:
        return message_of_blocks([self._whole(place, block) for place, block in sorted(self._blocks.items())], "content")

    def _whole(self, place: int, block: JsonObject) -> JsonObject:
        grown = {name: str(text) for (at, name), text in self._grown.items() if at == place}
        text = grown.pop(_INPUT, "")
        given = parsed_object(text) if text else None
        called = {"input": {MALFORMED: text} if given is None else given} if text else {}
        return block | grown | called
