"""Text of others: split it into words, in any script, and make it safe to print."""

from __future__ import annotations

import re
import unicodedata

# Scripts without spaces: each character is a word.
_ALONE = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
_WORD = re.compile(rf"[{_ALONE}]|[^\W{_ALONE}]+")
_SPACELESS = re.compile(f"[{_ALONE}]")

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_HALF = re.compile("[\ud800-\udfff]")


def plain(text: str) -> str:
    """Replace control characters in text of files and models, which a terminal would obey."""
    return _CONTROL.sub("\ufffd", text)


def whole_characters(text: str) -> str:
    """Return a text that UTF-8 can express: JSON spells some characters in two halves, and half a character is none."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace") if _HALF.search(text) else text


def without_secret(text: str, secret: str) -> str:
    """Return what a service said as one line, without the key that it may repeat."""
    return " ".join((text.replace(secret, "[key]") if secret else text).split())


def words_of(text: str) -> list[str]:
    """Return the words of a text, without case and punctuation, in Unicode form NFKC."""
    return _WORD.findall(unicodedata.normalize("NFKC", text).lower())


def is_spaceless(word: str) -> bool:
    """Whether a word is a character of a script without spaces."""
    return _SPACELESS.fullmatch(word) is not None
