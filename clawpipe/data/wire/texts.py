"""Texts of messages whose content comes in parts.

Parts that a model is given (system, user, tool) are joined by line breaks, as vLLM and llama.cpp do it for chat templates that take
texts. Parts that a model has said are pieces of one text, cut where a citation or a call stands, and are joined by nothing, as the
clients of these APIs do it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from clawpipe.core.conversation.messages import Role


def joined_texts(role: Role | str, texts: Iterable[str]) -> str:
    """Return the text of a message in several parts."""
    return ("" if role == "assistant" else "\n").join(texts)


def texts_of(content: Any) -> list[str] | None:
    """Return the texts of a message's content; None if a part of it is not text."""
    parts = content if isinstance(content, list) else [] if content is None else [content]
    given = [part.get("text") if isinstance(part, dict) else part for part in parts]
    texts = [text for text in given if isinstance(text, str)]
    return texts if len(texts) == len(given) else None
