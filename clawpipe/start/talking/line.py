"""A line to a served model: a conversation over OpenAI's interface, streamed, with tools, and what its user thinks of answers."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

import httpx
import orjson

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.data.wire.dialects.pieces import Arguments, CallBegins, ChatPieces, Piece, Text
from clawpipe.errors import BusyError, DataError

_SECONDS = 300.0  # of silence
_TEMPERATURE = 0.8  # as nights sample
_LONGEST = 512  # tokens of a reply, and at most a quarter of the context


@dataclass(frozen=True)
class Card:
    """What a model says of itself.

    Attributes:
        tools: of its episodes, in request form.
        preamble: messages that began them.
        environment: name of the environment that it was trained in; "" for a base model.
        context: tokens of its context.
    """

    name: str
    version: str
    tools: Sequence[JsonObject] = ()
    preamble: Sequence[JsonObject] = ()
    environment: str = ""
    context: int = 4 * _LONGEST


@dataclass
class Line:
    """One conversation with one model.

    Args:
        client: an HTTP client whose base URL is the server's.
        card: the model's.

    Attributes:
        messages: said so far, without the preamble, in request form.
    """

    client: httpx.Client
    card: Card
    tools: Sequence[JsonObject] = ()
    preamble: Sequence[JsonObject] = ()
    messages: list[JsonObject] = field(default_factory=list)
    _session: str = field(default_factory=lambda: f"chat-{uuid.uuid4().hex[:12]}")
    _answer: str = ""

    def begin(self) -> None:
        """Begin a new conversation."""
        self.end()
        self.messages, self._session, self._answer = [], f"chat-{uuid.uuid4().hex[:12]}", ""

    def end(self) -> None:
        """Say that the conversation is over, so that what was captured of it can be read at once."""
        if self._answer:
            with suppress(httpx.HTTPError):  # a server that is gone, or captures nothing, needs no word
                self.client.post(f"/v1/sessions/{self._session}/done")

    def ask(self, show: Callable[[str], None]) -> JsonObject:
        """Ask for the next message, and add it to the conversation.

        Args:
            show: called with each part of the text as it comes.

        Raises:
            BusyError: the server does not answer.
            DataError: the server refuses, or what it sends is no answer.
        """
        pieces, message = ChatPieces(), dict[str, object](role="assistant", content="")
        for chunk in self._streamed():
            _add(message, pieces.add(chunk), show)
        _add(message, pieces.end(), show)
        self._answer = pieces.id or ""
        self.messages.append(message)
        return message

    def judge(self, thumb: str, correction: str = "") -> None:
        """Say what the user thinks of the last answer: `thumb` is up or down, with what would have been right.

        Raises:
            DataError: nothing was answered yet, or the server refuses.
        """
        if not self._answer:
            raise DataError("there is no answer yet", "chat", "say something first")
        body = {"response_id": self._answer, "thumb": thumb} | ({"correction": correction} if correction else {})
        with _asked(self.client.base_url):
            _require(self.client.post("/v1/feedback", json=body))

    def _streamed(self) -> Iterator[JsonObject]:
        body: JsonObject = {"model": self.card.name, "messages": [*self.preamble, *self.messages], "stream": True}
        body["temperature"] = _TEMPERATURE
        body |= {"max_tokens": min(_LONGEST, self.card.context // 4)} | ({"tools": list(self.tools)} if self.tools else {})
        headers = {"X-Session-Id": self._session}
        with (
            _asked(self.client.base_url),
            self.client.stream("POST", "/v1/chat/completions", json=body, headers=headers) as answer,
        ):
            _require(answer)
            for line in answer.iter_lines():
                data = line.removeprefix("data:").strip()
                if line.startswith("data:") and data != "[DONE]":
                    yield _read(data)


def card_of(client: httpx.Client) -> Card:
    """Return the card of the one model that a server has.

    Raises:
        BusyError, DataError: see `Line.ask`.
    """
    with _asked(client.base_url):
        answer = client.get("/v1/models")
        _require(answer)
        found = answer.json()["data"][0]
    return Card(found["id"], found["version"], found["tools"], found["preamble"], found["environment"], found["context_length"])


def _add(message: JsonObject, pieces: Sequence[Piece], show: Callable[[str], None]) -> None:
    """Add pieces of an answer to the message that they are of."""
    for piece in pieces:
        match piece:
            case Text(text):
                message["content"] += text
                show(text)
            case CallBegins(name, tool):
                call = {"id": name, "type": "function", "function": {"name": tool, "arguments": ""}}
                message.setdefault("tool_calls", []).append(call)
            case Arguments(text):
                message["tool_calls"][-1]["function"]["arguments"] += text
            case _:
                pass  # a thought is not said again


def _read(data: str) -> JsonObject:
    try:
        chunk = orjson.loads(data)
    except ValueError:
        raise DataError("the server's answer is no JSON", "chat", "its log says more") from None
    if isinstance(error := chunk.get("error"), Mapping):
        raise DataError(str(error.get("message")), "chat", "say it in fewer words, or begin anew with /new")
    return chunk


def _require(answer: httpx.Response) -> None:
    if answer.is_error:
        answer.read()
        error = answer.json().get("error") if answer.headers.get("content-type", "").startswith("application/json") else None
        told = error.get("message") if isinstance(error, Mapping) else answer.reason_phrase
        raise DataError(f"the server refuses: {told}", f"{answer.url} answers {answer.status_code}", "begin anew with /new")


@contextmanager
def _asked(url: httpx.URL) -> Iterator[None]:
    try:
        yield
    except httpx.HTTPError as error:
        raise BusyError(f"the server does not answer: {type(error).__name__}", str(url), "its log says why") from error
