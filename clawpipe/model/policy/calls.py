"""Tool-call formats: codecs between a policy's text and neutral tool calls, one per format. Nothing is ever evaluated.

`write` and `parse` are inverses on neutral calls. Text that looks like a call but cannot be parsed is kept: a ToolCall with
`malformed` set and the raw text in `arguments`, which `write` returns unchanged.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from clawpipe.core.conversation.messages import Message, ToolSpec
from clawpipe.core.conversation.messages import WrittenFormat as WrittenFormat
from clawpipe.model.policy.formats.common import Marker, Parsed, Pieces
from clawpipe.model.policy.formats.harmony import Harmony
from clawpipe.model.policy.formats.json_objects import Hermes, Llama3, Mistral
from clawpipe.model.policy.formats.pythonic import Pythonic
from clawpipe.model.policy.formats.qwen3_coder import Qwen3Coder


class Codec(Protocol):
    @property
    def markers(self) -> tuple[Marker, ...]:
        """What in the pieces may be one token."""
        ...

    def describe(self) -> str:
        """Return the system message's description of the tools; empty without tools."""
        ...

    def write(self, message: Message) -> Pieces:
        """Return the text of an assistant message: its content, then its calls.

        Raises:
            DataError: the format cannot write a name.
        """
        ...

    def result(self, message: Message) -> Pieces:
        """Return the text of a tool message."""
        ...

    def parse(self, text: str, turn: int) -> Parsed:
        """Parse text, as the inverse of `write`; never raises. The k-th call of the turn gets the id `call_{turn}_{k}`."""
        ...

    def content_end(self, text: str) -> int:
        """Return where in the beginning of a turn's text a call starts, or may turn out to start; its length if none does."""
        ...


_CODECS: dict[WrittenFormat, Callable[[Sequence[ToolSpec]], Codec]] = {
    "pythonic": Pythonic,
    "hermes": Hermes,
    "llama3": Llama3,
    "mistral": Mistral,
    "qwen3-coder": Qwen3Coder,
    "harmony": Harmony,
}


def codec(format: WrittenFormat, tools: Sequence[ToolSpec]) -> Codec:
    return _CODECS[format](tools)
