"""A tokenizer of bytes, for libraries that count tokens and want no particular ones."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from clawpipe.core.basics.json_types import JsonObject

_MESSAGE = re.compile(r"<\|(\w+)\|>(.*?)<\|end\|>", re.DOTALL)


class ByteTokenizer:
    """Has what libraries call of a tokenizer of transformers: each byte of a text's UTF-8 is a token."""

    eos_token = pad_token = "<|end|>"
    eos_token_id = pad_token_id = 0
    bos_token = None

    @classmethod
    def from_pretrained(cls, *_: Any, **__: Any) -> ByteTokenizer:
        """Return the tokenizer, whatever name it is asked for by."""
        return cls()

    def encode(self, text: str, **_: Any) -> list[int]:
        return list(text.encode())

    def decode(self, tokens: Sequence[int], **_: Any) -> str:
        return bytes(tokens).decode(errors="replace")

    def __call__(self, text: str, **_: Any) -> JsonObject:
        return {"input_ids": self.encode(text)}

    def apply_chat_template(
        self, conversation: Sequence[JsonObject], tokenize: bool = True, add_generation_prompt: bool = False, **_: Any
    ) -> list[int] | str:
        """Return a conversation as tokens, or as a text that `messages_of` reads."""
        parts = [f"<|{message['role']}|>{message['content'] or ''}<|end|>" for message in conversation]
        text = "".join([*parts, "<|assistant|>"] if add_generation_prompt else parts)
        return self.encode(text) if tokenize else text

    def messages_of(self, text: str) -> list[JsonObject]:
        """Return the messages that a text holds; none if this class has not written it."""
        return [{"role": role, "content": content} for role, content in _MESSAGE.findall(text)]
