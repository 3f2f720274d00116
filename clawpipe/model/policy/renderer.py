"""Render conversations to token ids and parse them back. Ids are assembled by segment, so spans and masks are exact.

Messages stand in the frame that clawpipe.model.policy.frames finds in the tokenizer, calls are written by
clawpipe.model.policy.calls. Markers are inserted as ids; text is encoded without special tokens, so no content can become a marker.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

from clawpipe.core.conversation.messages import Message, ToolCall, ToolSpec
from clawpipe.core.store.digests import sha256_bytes, sha256_json
from clawpipe.errors import ConfigError
from clawpipe.model.policy.calls import WrittenFormat, codec
from clawpipe.model.policy.formats.common import Marker, Pieces
from clawpipe.model.policy.frames import frame_of

if TYPE_CHECKING:
    from tokenizers import Tokenizer
    from transformers import PreTrainedTokenizerFast

_TURN = Message("assistant", "")
_PROBE = (  # every kind of segment once; its rendering is part of the digest
    Message("system", "s"),
    Message("user", "u"),
    Message("assistant", "a", (ToolCall("call_0_0", "t", '{"x": "y"}'),)),
    Message("tool", "r", tool_call_id="call_0_0", name="t"),
)


class Renderer:
    """Renders for one tokenizer, one tool-call format and one set of tools.

    Args:
        tokenizer: a fast tokenizer; it is copied, never changed.
        tool_call_format: the format in which calls are written and read.
        tools: tools to describe in the system message (one is added to a conversation without).

    Attributes:
        digest: sha256 of everything that decides tokens.
        stop_ids: ids of the tokens any of which ends an assistant turn.
        eos_id: the one that closes a turn which was cut off.

    Raises:
        ConfigError: the tokenizer has no token that ends a message, or is no fast tokenizer.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerFast, tool_call_format: WrittenFormat, tools: Sequence[ToolSpec]) -> None:
        self._codec = codec(tool_call_format, tools)
        self._frame = frame_of(tokenizer, tool_call_format)
        vocabulary = tokenizer.get_vocab()
        self.stop_ids = tuple(vocabulary[marker] for marker in self._frame.ends)
        self.eos_id = self.stop_ids[0]
        found = (vocabulary.get(marker) for marker in (*self._frame.markers, *self._codec.markers))
        self._backend = text_only(tokenizer, [marker for marker in found if marker is not None])
        self._start = [*_sequence_start(tokenizer), *self._tokens_of(self._frame.start(self._codec.describe()))]
        self._gap = self._encode(self._frame.gap)
        self._opening = self._tokens_of(self._frame.header(_TURN))
        self.digest = sha256_json(
            {"tokenizer": file_digest(self._backend), "tools": self._codec.describe(), "probe": self.prompt(_PROBE)}
        )

    def prompt(self, messages: Sequence[Message]) -> list[int]:
        """Return the ids of `messages` and of the header that opens the policy's next turn."""
        return [*self._start, *self.ids_of(self._with_tools(messages)), *self._opening]

    def continuation(self, finish_reason: str, messages: Sequence[Message]) -> list[int]:
        """Return the ids after a sampled turn: its end (the marker only if sampling was cut off), `messages`, the next header."""
        closing = [self.eos_id] if finish_reason == "length" else []
        return [*closing, *self._gap, *self.ids_of(messages), *self._opening]

    def ids_of(self, messages: Sequence[Message]) -> list[int]:
        """Return the ids of `messages` in the middle of a conversation, each with what separates it from the next."""
        return [token for message in messages for part in (*self._segments(message), self._gap) for token in part]

    def header_place(self, ids: Sequence[int], start: int) -> int | None:
        """Return where the header begins of the message whose text begins at `ids[start]`; None if there is no header.

        Another renderer's header is found by its opening marker, whatever follows it.
        """
        if isinstance(self._frame.opening, Marker):
            return next((place for place in range(start - 1, -1, -1) if ids[place] == self._opening[0]), None)
        place = start - len(self._opening)
        return place if place >= 0 and list(ids[place:start]) == self._opening else None

    def parse(self, ids: Sequence[int], turn: int) -> Message:
        """Parse `ids`, with or without end marker, into an assistant message. Calls that cannot be parsed are kept as malformed."""
        body = ids[:-1] if ids and ids[-1] in self.stop_ids else ids
        content, calls = self._codec.parse(self._backend.decode(list(body), skip_special_tokens=False), turn)
        return Message("assistant", content, calls)

    def render_with_mask(self, messages: Sequence[Message]) -> tuple[list[int], list[bool]]:
        """Return ids [T] and loss mask [T] of a finished conversation; the mask is true on assistant turns and their end
        markers."""
        ids = list(self._start)
        mask = [False] * len(ids)
        for message in self._with_tools(messages):
            header, body = self._segments(message)
            ids += [*header, *body, *self._gap]
            mask += [False] * len(header) + [message.role == "assistant"] * len(body) + [False] * len(self._gap)
        return ids, mask

    def _segments(self, message: Message) -> tuple[list[int], list[int]]:
        """Return the header of a message, and its text with the end marker."""
        end = self._encode(self._frame.end(message))
        return self._tokens_of(self._frame.header(message)), [*self._tokens_of(self._pieces(message)), *end]

    def _pieces(self, message: Message) -> Pieces:
        if message.role == "assistant":
            return self._codec.write(message)
        return self._codec.result(message) if message.role == "tool" else [message.content]

    def _with_tools(self, messages: Sequence[Message]) -> list[Message]:
        return self._frame.with_tools(messages, self._codec.describe())

    def _tokens_of(self, pieces: Pieces) -> list[int]:
        return [token for piece in pieces for token in self._encode(piece)]

    def _encode(self, text: str) -> list[int]:
        marker = self._backend.token_to_id(text) if isinstance(text, Marker) else None
        if marker is not None:
            return [marker]
        # `encode` holds the GIL until it is done, which takes seconds for a long text; the batch call does not.
        return self._backend.encode_batch_fast([text], add_special_tokens=False)[0].ids


def text_only(tokenizer: PreTrainedTokenizerFast, markers: Sequence[int]) -> Tokenizer:
    """Copy the tokenizer's backend so that it encodes all text as text: no padding, no truncation, no special tokens."""
    if not getattr(tokenizer, "is_fast", False):
        raise ConfigError("the model has no fast tokenizer", "model.base", "use a model that ships tokenizer.json")
    backend = copy.deepcopy(tokenizer.backend_tokenizer)
    backend.no_padding()
    backend.no_truncation()
    # Markers that a model has added as ordinary tokens would be found in text, so they are made special here.
    backend.add_special_tokens([backend.id_to_token(marker) for marker in markers])
    backend.encode_special_tokens = True
    return backend


def _sequence_start(tokenizer: PreTrainedTokenizerFast) -> list[int]:
    """Return the beginning-of-sequence token if the tokenizer puts one before text."""
    first = list(tokenizer("")["input_ids"])[:1]
    return first if first == [tokenizer.bos_token_id] else []


def file_digest(backend: Tokenizer) -> str:
    return sha256_bytes(json.dumps(json.loads(backend.to_str()), sort_keys=True).encode())
