"""Texts of messages whose content comes in parts.

Parts that a model is given (system, user, tool) are joined by line breaks, as vLLM and llama.cpp do it for chat templates that take
texts. Parts that a model has said are pieces of one text, cut where a citation or a call stands, and are joined by nothing, as the
clients of these APIs do it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from clawpipe.core.conversation.messages import Role


class GrowingText:
    """A text that comes in pieces, put together in time that is linear in its length: `str` of it joins them.

    Adding to a text that an attribute or a dictionary holds copies all of it, for each of perhaps millions of pieces.
    """

    def __init__(self, text: str = "") -> None:
        self._pieces, self._length = [text] if text else [], len(text)

    def add(self, text: str) -> None:
        if text:
            self._pieces.append(text)
            self._length += len(text)

    def after(self, start: int) -> str:
        """Return what has come after the first `start` characters."""
        left, found = self._length - start, list[str]()
        for piece in reversed(self._pieces):
            if left <= 0:
                break
            found.append(piece[-left:] if len(piece) > left else piece)
            left -= len(piece)
        return "".join(reversed(found))

    def __len__(self) -> int:
        return self._length

    def __str__(self) -> str:
        if len(self._pieces) > 1:
            self._pieces = ["".join(self._pieces)]
        return self._pieces[0] if self._pieces else ""


def joined_texts(role: Role | str, texts: Iterable[str]) -> str:
    """Return the text of a message in several parts."""
    return ("" if role == "assistant" else "\n").join(texts)


def texts_of(content: Any) -> list[str] | None:
    """Return the texts of a message's content; None if a part of it is not text."""
    parts = content if isinstance(content, list) else [] if content is None else [content]
    given = [part.get("text") if isinstance(part, dict) else part for part in parts]
    texts = [text for text in given if isinstance(text, str)]
    return texts if len(texts) == len(given) else None
