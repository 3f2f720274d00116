"""Write messages in a model's frame: the tokens around a role and a text, which depend on the model's vocabulary.

| frame | a message | where |
|---|---|---|
| harmony | `<|start|>role<|message|>text<|end|>` | `harmony`, if the vocabulary has its markers |
| Llama 3 | `<|start_header_id|>role<|end_header_id|>\\n\\ntext<|eot_id|>` | `llama3`, if the vocabulary has these markers |
| ChatML | `<|im_start|>role\\ntext<|im_end|>\\n` | else, if it has these; in `qwen3-coder` tool results are the user's |
| plain | `### role\\ntext`, the end-of-sequence token, `\\n` | else |
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from msgspec.structs import replace

from clawpipe.core.conversation.messages import Message, WrittenFormat
from clawpipe.errors import ConfigError
from clawpipe.model.policy.formats import harmony
from clawpipe.model.policy.formats.common import Marker, Pieces

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

_LLAMA3 = Marker("<|start_header_id|>"), Marker("<|end_header_id|>"), Marker("<|eot_id|>")
_CHATML = Marker("<|im_start|>"), Marker("<|im_end|>")
_PLAIN_OPENING = "### "
# What gpt-oss was trained with, as openai-harmony writes it; the date is left out, since equal conversations have equal tokens.
_SYSTEM = (
    "You are ChatGPT, a large language model trained by OpenAI.\nKnowledge cutoff: 2024-06\n\nReasoning: medium\n\n"
    "# Valid channels: analysis, commentary, final. Channel must be included for every message."
)
_TO_COMMENTARY = "\nCalls to these tools must go to the commentary channel: 'functions'."


class Frame(Protocol):
    """The tokens and texts around the text of messages."""

    @property
    def opening(self) -> str:
        """Return the marker or text with which a message begins."""
        ...

    @property
    def gap(self) -> str:
        """Text between two messages."""
        ...

    @property
    def ends(self) -> tuple[Marker, ...]:
        """Markers any of which ends a policy's turn; the first one closes a turn that was cut off."""
        ...

    @property
    def markers(self) -> tuple[Marker, ...]:
        """All markers of the frame, each one token."""
        ...

    def start(self, tools: str) -> Pieces:
        """Return the text before the first message of a conversation with these described tools."""
        ...

    def header(self, message: Message) -> Pieces:
        """Return the header of a message: all before its text."""
        ...

    def end(self, message: Message) -> Marker:
        """Return the marker after a message's text."""
        ...

    def with_tools(self, messages: Sequence[Message], tools: str) -> list[Message]:
        """Return the messages with the description of the tools in the system message; one is added where there is none."""
        ...


@dataclass(frozen=True)
class RoleFrame:
    """A frame whose header is the role.

    Attributes:
        opening: what stands before the role.
        after_role: the marker after the role, if there is one.
        header_end: text that ends the header.
        last: the marker that ends the message.
        tool_role: name of the role of tool results.
    """

    opening: str
    after_role: Marker | None
    header_end: str
    last: Marker
    gap: str
    tool_role: str = "tool"

    @property
    def ends(self) -> tuple[Marker, ...]:
        return (self.last,)

    @property
    def markers(self) -> tuple[Marker, ...]:
        return tuple(part for part in (self.last, self.opening, self.after_role) if isinstance(part, Marker))

    def start(self, tools: str) -> Pieces:
        return []

    def header(self, message: Message) -> Pieces:
        role = self.tool_role if message.role == "tool" else message.role
        if not isinstance(self.opening, Marker):
            return [f"{self.opening}{role}{self.header_end}"]
        if self.after_role is None:
            return [self.opening, f"{role}{self.header_end}"]
        return [self.opening, role, self.after_role, self.header_end]

    def end(self, message: Message) -> Marker:
        return self.last

    def with_tools(self, messages: Sequence[Message], tools: str) -> list[Message]:
        if not tools:
            return list(messages)
        if not messages or messages[0].role != "system":
            return [Message("system", tools), *messages]
        return [replace(messages[0], content=f"{messages[0].content}\n{tools}"), *messages[1:]]


class HarmonyFrame:
    """The frame of gpt-oss. A turn ends with `<|return|>`, or with `<|call|>` after calls, in later prompts as well."""

    opening: str = harmony.START
    gap = ""
    ends = harmony.RETURN, harmony.CALL
    markers = harmony.MARKERS

    def start(self, tools: str) -> Pieces:
        return [harmony.START, "system", harmony.MESSAGE, _SYSTEM + (_TO_COMMENTARY if tools else ""), harmony.END]

    def header(self, message: Message) -> Pieces:
        if message.role == "assistant":
            return [harmony.START, "assistant"]
        if message.role == "tool":
            name = f"{harmony.NAMESPACE}{message.name or 'tool'} to=assistant"
            return [harmony.START, name, harmony.CHANNEL, "commentary", harmony.MESSAGE]
        return [harmony.START, "developer" if message.role == "system" else message.role, harmony.MESSAGE]

    def end(self, message: Message) -> Marker:
        if message.role != "assistant":
            return harmony.END
        return harmony.CALL if message.tool_calls else harmony.RETURN

    def with_tools(self, messages: Sequence[Message], tools: str) -> list[Message]:
        instructed = bool(messages) and messages[0].role == "system"
        parts = [f"# Instructions\n\n{messages[0].content}"] if instructed else []
        parts += [tools] if tools else []
        return [*([Message("system", "\n\n".join(parts))] if parts else []), *messages[instructed:]]


def frame_of(tokenizer: PreTrainedTokenizerFast, format: WrittenFormat) -> Frame:
    """Return the frame of a tokenizer's conversations.

    Raises:
        ConfigError: the tokenizer has no token that could end a message.
    """
    vocabulary = tokenizer.get_vocab()
    if format == "harmony" and all(marker in vocabulary for marker in harmony.MARKERS):
        return HarmonyFrame()
    if format == "llama3" and all(marker in vocabulary for marker in _LLAMA3):
        opening, after_role, end = _LLAMA3
        return RoleFrame(opening, after_role, "\n\n", end, gap="", tool_role="ipython")
    if all(marker in vocabulary for marker in _CHATML):
        opening, end = _CHATML
        return RoleFrame(opening, None, "\n", end, gap="\n", tool_role="user" if format == "qwen3-coder" else "tool")
    if tokenizer.eos_token is None:
        raise ConfigError("the model's tokenizer has no end-of-sequence token", "model.base", "use a model with a chat format")
    return RoleFrame(_PLAIN_OPENING, None, "\n", Marker(tokenizer.eos_token), gap="\n")
