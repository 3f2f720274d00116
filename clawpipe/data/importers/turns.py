"""Put together messages of the chat API from pieces: what a model thinks, says and calls in a row is one message.

Most programs log events, not messages. Their readers turn each event into a piece here, and `read_messages` reads the result, so
that texts, calls and failures of tools are interpreted in one place.
"""

from __future__ import annotations

from typing import Any

from clawpipe.core.basics.json_types import JsonObject


class Turns:
    """A conversation that grows piece by piece.

    Attributes:
        messages: its messages in the form of the chat API.
    """

    def __init__(self) -> None:
        self.messages: list[JsonObject] = []
        self._unanswered: list[str] = []  # ids of calls
        self._is_closed = False

    def close(self) -> None:
        """End the model's message: what it says next is another one, though nobody spoke in between."""
        self._is_closed = True

    def say(self, role: str, content: Any, **more: Any) -> None:
        """Add what somebody said: a text or parts. Further fields belong to the message."""
        if role != "assistant":
            self.messages.append({"role": role, "content": content} | more)
            return
        reply = self._reply()
        reply["content"] += content if isinstance(content, list) else [] if content is None else [content]
        reply |= more

    def think(self, text: Any) -> None:
        """Add a thought of the model, if there is any."""
        if isinstance(text, str) and text.strip():
            self._reply()["content"].append({"type": "thinking", "thinking": text})

    def call(self, name: Any, arguments: Any, call_id: Any = None, *, free: bool = False) -> None:
        """Add a call of a tool.

        Args:
            free: the tool takes a text and no object.
        """
        call_id = call_id if isinstance(call_id, str) and call_id else f"call_{len(self.messages)}_{len(self._unanswered)}"
        kind = "custom_tool_call" if free else "function_call"
        self._reply()["content"].append({"type": kind, "id": call_id, "name": name, "arguments": arguments})
        self._unanswered.append(call_id)

    def answer(self, content: Any, call_id: Any = None, name: Any = None, *, failed: bool | None = None) -> None:
        """Add the result of a call: of the oldest one without a result, unless it names its own."""
        if not isinstance(call_id, str) or not call_id:
            call_id = self._unanswered[0] if self._unanswered else None
        self._unanswered = [one for one in self._unanswered if one != call_id]
        known = {"tool_call_id": call_id, "name": name if isinstance(name, str) else None, "failed": failed}
        self.messages.append(
            {"role": "tool", "content": content} | {key: value for key, value in known.items() if value is not None}
        )

    def mark(self, **fields: Any) -> None:
        """Add fields to the last message of the model, if it is the last of all."""
        if self.messages and self.messages[-1]["role"] == "assistant":
            self.messages[-1] |= fields

    @property
    def answered(self) -> bool:
        """Whether the last message is the model's."""
        return bool(self.messages) and self.messages[-1]["role"] == "assistant"

    def _reply(self) -> JsonObject:
        """Return the message that the model is speaking: the last one, or a new one after anybody else's."""
        if self._is_closed or not self.answered:
            self.messages.append({"role": "assistant", "content": []})
        self._is_closed = False
        return self.messages[-1]
