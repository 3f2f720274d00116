"""Answers of chat completions as those of Anthropic's `/v1/messages`, whole and as events, and its errors.

A thought has to have a signature, by which the service knows its own thoughts again. Nobody signs here; what is written says so.
"""

from __future__ import annotations

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.data.wire.arguments import parsed_object
from clawpipe.data.wire.dialects.messages_in import MALFORMED
from clawpipe.data.wire.dialects.pieces import Arguments, CallBegins, ChatPieces, Piece, Text, Thought
from clawpipe.data.wire.dialects.writing import Event, count_of
from clawpipe.data.wire.texts import GrowingText

_SIGNATURE = "unsigned"
_REASONS = {"stop": "end_turn", "length": "max_tokens", "content_filter": "refusal"}
_ERRORS = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
    529: "overloaded_error",
}


def messages_error(status: int, message: str) -> JsonObject:
    """Return an error in Anthropic's form."""
    kind = _ERRORS.get(status, "api_error" if status >= 500 else "invalid_request_error")
    return {"type": "error", "error": {"type": kind, "message": message}, "request_id": None}


class MessageWriter:
    """Writes one message; see `Writer`.

    Args:
        asked: the request.
        answer_id: the message's id.
    """

    def __init__(self, asked: JsonObject, answer_id: str) -> None:
        self.id, self.read = answer_id, ChatPieces()
        self._asked = asked
        self._blocks: list[JsonObject] = []  # the last one is open, as `input` the text of a call's arguments
        self._open = ("", GrowingText())  # the field of the open block that grows, and what it has come to
        self._is_open = self._has_begun = False

    def add(self, body: JsonObject) -> list[Event]:
        pieces = self.read.add(body)
        return [*self._begin(), *(event for piece in pieces for event in self._take(piece))]

    def end(self) -> list[Event]:
        rest = [event for piece in self.read.end() for event in self._take(piece)]
        delta = {"stop_reason": self._stop_reason, "stop_sequence": self._stop_sequence}
        last = {"type": "message_delta", "delta": delta, "usage": self._usage}
        return [*self._begin(), *rest, *self._close(), last, {"type": "message_stop"}]

    def fail(self, status: int, message: str, param: str | None, code: str | None) -> list[Event]:
        return [messages_error(status, message)]

    def whole(self) -> JsonObject:
        self._settle()
        ended = {"stop_reason": self._stop_reason, "stop_sequence": self._stop_sequence, "usage": self._usage}
        return self._message | {"content": [_written(block) for block in self._blocks]} | ended

    @property
    def _message(self) -> JsonObject:
        """The message before it has content."""
        head = {"id": self.id, "type": "message", "role": "assistant", "model": self.read.model or self._asked.get("model") or ""}
        return head | {"content": [], "stop_reason": None, "stop_sequence": None, "usage": self._usage}

    @property
    def _usage(self) -> dict[str, int]:
        cached = count_of(self.read.usage, "prompt_tokens_details", "cached_tokens")
        sampled = self.read.usage.get("completion_tokens")
        return {
            "input_tokens": max(0, self.read.prompt_tokens - cached),
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": cached,
            "output_tokens": sampled if isinstance(sampled, int) else 0,
        }

    @property
    def _stop_sequence(self) -> str | None:
        stops = self._asked.get("stop_sequences") or ()
        return self.read.stop if self.read.finish_reason == "stop" and self.read.stop in stops else None

    @property
    def _stop_reason(self) -> str:
        reason = self.read.finish_reason or "stop"
        if reason == "length":
            limit = self._asked.get("max_tokens")
            is_cut_before = isinstance(limit, int) and 0 < self._usage["output_tokens"] < limit
            return "model_context_window_exceeded" if is_cut_before else "max_tokens"
        if self.read.has_calls:
            return "tool_use"
        return "stop_sequence" if self._stop_sequence else _REASONS.get(reason, "end_turn")

    def _begin(self) -> list[Event]:
        if self._has_begun:
            return []
        self._has_begun = True
        return [{"type": "message_start", "message": self._message}, {"type": "ping"}]

    def _take(self, piece: Piece) -> list[Event]:
        opening = self._open_for(piece)
        if isinstance(piece, CallBegins):
            return opening
        name, delta = _delta(piece)
        self._open = name, self._open[1]
        self._open[1].add(piece.text)
        return [*opening, {"type": "content_block_delta", "index": len(self._blocks) - 1, "delta": delta}]

    def _open_for(self, piece: Piece) -> list[Event]:
        """Return the events that open a block for a piece, and close the one before; none if it belongs to the open one."""
        block = _block(piece)
        if not isinstance(piece, CallBegins) and self._is_open and self._blocks[-1]["type"] == block["type"]:
            return []
        events = self._close()
        self._blocks.append(block)
        self._is_open, self._open = True, ("", GrowingText())
        return [*events, {"type": "content_block_start", "index": len(self._blocks) - 1, "content_block": _started(block)}]

    def _close(self) -> list[Event]:
        if not self._is_open:
            return []
        self._settle()
        self._is_open, place, block = False, len(self._blocks) - 1, self._blocks[-1]
        signed: list[Event] = []
        if block["type"] == "thinking":
            block["signature"] = _SIGNATURE
            delta = {"type": "signature_delta", "signature": _SIGNATURE}
            signed = [{"type": "content_block_delta", "index": place, "delta": delta}]
        return [*signed, {"type": "content_block_stop", "index": place}]

    def _settle(self) -> None:
        """Write what has come into the open block."""
        name, text = self._open
        if self._is_open and name:
            self._blocks[-1][name] = str(text)


def _block(piece: Piece) -> JsonObject:
    match piece:
        case Thought():
            return {"type": "thinking", "thinking": "", "signature": ""}
        case Text():
            return {"type": "text", "text": ""}
        case CallBegins():
            return {"type": "tool_use", "id": piece.id, "name": piece.name, "input": ""}
        case Arguments():
            return {"type": "tool_use"}


def _delta(piece: Thought | Text | Arguments) -> tuple[str, JsonObject]:
    """Return the field of a block to which a piece is added, and the delta that says so."""
    match piece:
        case Thought():
            return "thinking", {"type": "thinking_delta", "thinking": piece.text}
        case Text():
            return "text", {"type": "text_delta", "text": piece.text}
        case Arguments():
            return "input", {"type": "input_json_delta", "partial_json": piece.text}


def _started(block: JsonObject) -> JsonObject:
    return block | {"input": {}} if block["type"] == "tool_use" else dict(block)


def _written(block: JsonObject) -> JsonObject:
    """Return a block whose call's arguments are the object that an input has to be."""
    if block["type"] != "tool_use":
        return block
    text = block["input"] or "{}"
    given = parsed_object(text)
    return block | {"input": {MALFORMED: text} if given is None else given}
