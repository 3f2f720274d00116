"""Answers of chat completions as those of OpenAI's `/v1/responses`, whole and as events."""

from __future__ import annotations

import uuid
from typing import Any

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.data.wire.dialects.pieces import Arguments, CallBegins, ChatPieces, Piece, Text, Thought
from clawpipe.data.wire.dialects.responses_in import asks_for_logprobs
from clawpipe.data.wire.dialects.writing import Event, count_of
from clawpipe.data.wire.texts import GrowingText

_ECHOED = (  # fields of a request that its answer says again
    *("instructions", "max_output_tokens", "previous_response_id", "prompt_cache_key", "safety_identifier", "temperature"),
    *("top_logprobs", "top_p"),
)
_CUT = {"length": "max_output_tokens", "content_filter": "content_filter"}
_PREFIXES = {"message": "msg", "reasoning": "rs", "function_call": "fc"}
_RATE_LIMIT = 429


class ResponseWriter:
    """Writes one response; see `Writer`.

    Args:
        asked: the request.
        answer_id: the response's id.
        created: when it began, in seconds since 1970.
    """

    def __init__(self, asked: JsonObject, answer_id: str, created: float) -> None:
        self.id, self.read = answer_id, ChatPieces()
        self._asked, self._created = asked, float(created)
        self._items: list[JsonObject] = []  # the last one is open
        self._open = GrowingText()  # the text or the arguments of the open one
        self._is_open = self._has_begun = False
        self._number = 0

    def add(self, body: JsonObject) -> list[Event]:
        pieces = self.read.add(body)
        return [*self._begin(), *(event for piece in pieces for event in self._take(piece))]

    def end(self) -> list[Event]:
        begun = self._begin()
        rest = [event for piece in self.read.end() for event in self._take(piece)]
        if not self._items:  # an answer says something, if only an empty text
            rest += self._open_for(Text("", []))
        closed, response = self._close(self._status), self.whole()
        return [*begun, *rest, *closed, self._event(f"response.{response['status']}", response=response)]

    def fail(self, status: int, message: str, param: str | None, code: str | None) -> list[Event]:
        begun = self._begin()
        error = {"code": "rate_limit_exceeded" if status == _RATE_LIMIT else "server_error", "message": message}
        failed = self._response("failed") | {"error": error}
        return [*begun, *self._close("incomplete"), self._event("response.failed", response=failed)]

    def whole(self) -> JsonObject:
        cut = _CUT.get(self.read.finish_reason or "")
        ended = {"incomplete_details": {"reason": cut}} if cut else {"completed_at": self._created}
        return self._response(self._status) | ended | {"usage": self._usage}

    @property
    def _status(self) -> str:
        return "incomplete" if self.read.finish_reason in _CUT else "completed"

    def _response(self, status: str) -> JsonObject:
        """Return the response as it is now."""
        self._settle()
        asked = self._asked
        head = {"id": self.id, "object": "response", "created_at": self._created, "status": status, "background": False}
        return head | {
            "model": self.read.model or asked.get("model") or "",
            "output": [_snapshot(item) for item in self._items],
            "error": None,
            "incomplete_details": None,
            "usage": None,
            "parallel_tool_calls": asked.get("parallel_tool_calls") is not False,
            "tool_choice": asked.get("tool_choice") or "auto",
            "tools": [{"description": None, "parameters": None, "strict": None} | tool for tool in asked.get("tools") or ()],
            "text": {"format": {"type": "text"}} | (asked.get("text") or {}),
            "reasoning": {"effort": None, "summary": None} | (asked.get("reasoning") or {}),
            "metadata": asked.get("metadata") or {},
            "truncation": "disabled",
            **{name: asked.get(name) for name in _ECHOED},
            **({"user": asked["user"]} if asked.get("user") else {}),  # which may not be null
        }

    @property
    def _usage(self) -> JsonObject:
        usage = self.read.usage
        sampled = usage.get("completion_tokens")
        sampled = sampled if isinstance(sampled, int) else 0
        cached = count_of(usage, "prompt_tokens_details", "cached_tokens")
        return {
            "input_tokens": self.read.prompt_tokens,
            "input_tokens_details": {"cached_tokens": cached, "cache_write_tokens": 0},
            "output_tokens": sampled,
            "output_tokens_details": {"reasoning_tokens": count_of(usage, "completion_tokens_details", "reasoning_tokens")},
            "total_tokens": self.read.prompt_tokens + sampled,
        }

    def _event(self, kind: str, **fields: Any) -> Event:
        self._number += 1
        return {"type": kind, "sequence_number": self._number - 1, **fields}

    def _begin(self) -> list[Event]:
        if self._has_begun:
            return []
        self._has_begun = True
        kinds = ("response.created", "response.in_progress")
        return [self._event(kind, response=self._response("in_progress")) for kind in kinds]

    def _take(self, piece: Piece) -> list[Event]:
        opening = self._open_for(piece)
        match piece:
            case CallBegins():
                return opening
            case Arguments():
                self._open.add(piece.text)
                return [*opening, self._of_item("response.function_call_arguments.delta", delta=piece.text)]
            case Text():
                return opening + self._text(piece)
            case Thought():
                self._open.add(piece.text)
                return [*opening, self._of_part("response.reasoning_text.delta", delta=piece.text)]

    def _text(self, piece: Text) -> list[Event]:
        self._open.add(piece.text)
        logprobs = [_logprob(one) for one in piece.logprobs] if asks_for_logprobs(self._asked) else []
        self._part["logprobs"] += logprobs
        return [self._of_part("response.output_text.delta", delta=piece.text, logprobs=[_bare(one) for one in logprobs])]

    def _open_for(self, piece: Piece) -> list[Event]:
        """Return the events that open an item for a piece, and close the one before; none if it belongs to the open one."""
        item = _item(piece)
        if not isinstance(piece, CallBegins) and self._is_open and self._items[-1]["type"] == item["type"]:
            return []
        events = self._close("completed")
        self._items.append(item)
        self._is_open, self._open = True, GrowingText()
        events.append(self._event("response.output_item.added", output_index=len(self._items) - 1, item=_snapshot(item)))
        if part := _new_part(item["type"]):
            item["content"] = [part]
            events.append(self._of_part("response.content_part.added", part=_snapshot(part)))
        return events

    def _close(self, status: str) -> list[Event]:
        """Return the events that end the open item."""
        if not self._is_open:
            return []
        self._settle()
        self._is_open, item = False, self._items[-1]
        item["status"] = status
        if item["type"] == "function_call":
            said = {name: item[name] for name in ("name", "arguments")}
            events = [self._of_item("response.function_call_arguments.done", **said)]
        else:
            events = [self._text_done(self._part), self._of_part("response.content_part.done", part=_snapshot(self._part))]
        return [*events, self._event("response.output_item.done", output_index=len(self._items) - 1, item=_snapshot(item))]

    def _settle(self) -> None:
        """Write what has come into the open item."""
        if self._is_open and self._items[-1]["type"] == "function_call":
            self._items[-1]["arguments"] = str(self._open)
        elif self._is_open and self._items[-1]["content"]:
            self._part["text"] = str(self._open)

    def _text_done(self, part: JsonObject) -> Event:
        if part["type"] == "reasoning_text":
            return self._of_part("response.reasoning_text.done", text=part["text"])
        return self._of_part("response.output_text.done", text=part["text"], logprobs=[_bare(one) for one in part["logprobs"]])

    @property
    def _part(self) -> JsonObject:
        return self._items[-1]["content"][0]

    def _of_item(self, kind: str, **fields: Any) -> Event:
        return self._event(kind, item_id=self._items[-1]["id"], output_index=len(self._items) - 1, **fields)

    def _of_part(self, kind: str, **fields: Any) -> Event:
        return self._of_item(kind, content_index=0, **fields)


def _item(piece: Piece) -> JsonObject:
    """Return the item that a piece begins."""
    match piece:
        case Thought():
            item: JsonObject = {"type": "reasoning", "summary": [], "content": []}
        case Text():
            item = {"type": "message", "role": "assistant", "content": []}
        case CallBegins():
            item = {"type": "function_call", "call_id": piece.id, "name": piece.name, "arguments": ""}
        case Arguments():
            item = {"type": "function_call"}
    return {"id": f"{_PREFIXES[item['type']]}_{uuid.uuid4().hex}", "status": "in_progress"} | item


def _new_part(kind: str) -> JsonObject | None:
    """Return the empty part of an item's content; None for an item without parts."""
    if kind == "function_call":
        return None
    if kind == "reasoning":
        return {"type": "reasoning_text", "text": ""}
    return {"type": "output_text", "text": "", "annotations": [], "logprobs": []}


def _snapshot(value: JsonObject) -> JsonObject:
    """Return an item or a part as it is now; what is written later does not change it."""
    copied = {name: list(one) if isinstance(one, list) else one for name, one in value.items()}
    if "content" in copied:
        copied["content"] = [_snapshot(part) for part in copied["content"]]
    return copied


def _logprob(entry: JsonObject) -> JsonObject:
    """Return the log-prob of a token in a whole answer's form, which wants its bytes."""
    rivals = [_spelt(rival) for rival in entry.get("top_logprobs") or () if isinstance(rival, dict)]
    return _spelt(entry) | {"top_logprobs": rivals}


def _spelt(entry: JsonObject) -> JsonObject:
    token = str(entry.get("token") or "")
    return {"token": token, "logprob": entry.get("logprob"), "bytes": entry.get("bytes") or list(token.encode("utf-8", "replace"))}


def _bare(entry: JsonObject) -> JsonObject:
    """Return a log-prob in the form of the events."""
    rivals = [{"token": rival["token"], "logprob": rival["logprob"]} for rival in entry["top_logprobs"]]
    return {"token": entry["token"], "logprob": entry["logprob"], "top_logprobs": rivals}
