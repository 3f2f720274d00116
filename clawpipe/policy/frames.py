"""How messages are framed: the tokens around a role and a text, which depend on the model's vocabulary.

| frame | a message | where |
|---|---|---|
| Llama 3 | `<|start_header_id|>role<|end_header_id|>\\n\\ntext<|eot_id|>` | `llama3`, if the vocabulary has these markers |
| ChatML | `<|im_start|>role\\ntext<|im_end|>\\n` | else, if it has these; in `qwen3-coder` tool results are the user's |
| plain | `### role\\ntext`, the end-of-sequence token, `\\n` | else |
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from clawpipe.errors import ConfigError
from clawpipe.messages import WrittenFormat

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

_LLAMA3 = ("<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>")
_CHATML = ("<|im_start|>", "<|im_end|>")


@dataclass(frozen=True)
class Frame:
    """The parts around a message, in order.

    Attributes:
        opening: id of the token before the role; None: the text "### ".
        after_role: id of the token after the role; None: no token.
        header_end: text that ends the header.
        end: id of the token that ends the message.
        gap: text between two messages.
        tool_role: name of the role of tool results.
    """

    opening: int | None
    after_role: int | None
    header_end: str
    end: int
    gap: str
    tool_role: str = "tool"

    @property
    def markers(self) -> list[int]:
        return [marker for marker in (self.end, self.opening, self.after_role) if marker is not None]


def frame_of(tokenizer: PreTrainedTokenizerFast, format: WrittenFormat) -> Frame:
    """Return the frame of a tokenizer's conversations.

    Raises:
        ConfigError: the tokenizer has no token that could end a message.
    """
    vocabulary = tokenizer.get_vocab()
    if format == "llama3" and all(marker in vocabulary for marker in _LLAMA3):
        opening, after_role, end = (vocabulary[marker] for marker in _LLAMA3)
        return Frame(opening, after_role, "\n\n", end, gap="", tool_role="ipython")
    if all(marker in vocabulary for marker in _CHATML):
        opening, end = (vocabulary[marker] for marker in _CHATML)
        return Frame(opening, None, "\n", end, gap="\n", tool_role="user" if format == "qwen3-coder" else "tool")
    if tokenizer.eos_token is None:
        raise ConfigError("the model's tokenizer has no end-of-sequence token", "model.base", "use a model with a chat format")
    return Frame(None, None, "\n", vocabulary[str(tokenizer.eos_token)], gap="\n")
