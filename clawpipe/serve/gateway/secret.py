"""Recognise the engine's key in what the engine says, in whatever form it says it."""

from __future__ import annotations

import base64
import html
import re
from urllib.parse import unquote

_LEAST = 12  # letters and digits of a key that give it away; hosted services show fewer of the keys that they refuse
_SHORT = 8  # a shorter key may be a word, such as EMPTY, and is looked for as it is
_ENCODED = re.compile(r"[A-Za-z0-9+/_-]{12,}")
_BESIDE = re.compile(r"[\W_]+")
_ESCAPED = re.compile(r"\\u([0-9a-fA-F]{4})")


class Secret:
    """The key that the engine is asked with; empty for none."""

    def __init__(self, key: str) -> None:
        bare = _bare(key)
        length = min(_LEAST, len(bare))
        self._word = key if len(bare) < _SHORT else ""
        self._parts = set[str]() if self._word or not key else {bare[at : at + length] for at in range(len(bare) - length + 1)}

    def is_in(self, text: str) -> bool:
        """Whether a text holds the key or a telling part of it: plain, split by other characters, escaped, or in Base64 or hex."""
        if not self._parts:
            return bool(self._word) and self._word in text
        decoded = (one for found in _ENCODED.findall(text) for one in (_of_base64(found), _of_hex(found)))
        return any(self._is_in_plain(one) for one in (text, unquote(text), html.unescape(text), _unescaped(text), *decoded))

    def _is_in_plain(self, text: str) -> bool:
        bare = _bare(text)
        return any(part in bare for part in self._parts)


def _bare(text: str) -> str:
    """Return the letters and digits of a text."""
    return _BESIDE.sub("", text).lower()


def _unescaped(text: str) -> str:
    return _ESCAPED.sub(lambda found: chr(int(found[1], 16)), text)


def _of_base64(text: str) -> str:
    standard = text.translate(str.maketrans("-_", "+/"))
    try:
        return base64.b64decode(standard + "=" * (-len(standard) % 4)).decode("utf-8", "replace")
    except ValueError:
        return ""


def _of_hex(text: str) -> str:
    try:
        return bytes.fromhex(text).decode("utf-8", "replace")
    except ValueError:
        return ""
