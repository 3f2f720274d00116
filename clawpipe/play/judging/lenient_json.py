"""Read an object as models write it: JSON, or nearly: single quotes, `+1`, a trailing comma, Python's words, names without quotes,
comments, and quotation marks in a text that nobody escaped.

The time is linear in the text, which is read once from left to right, whatever it says.
"""

from __future__ import annotations

import re
from typing import Any

from clawpipe.core.basics.words import whole_characters

_SPACE = re.compile(r"(?:\s|//[^\n]*|#[^\n]*|/\*.*?\*/)*", re.DOTALL)
_ENDS = r"(?=\s*(?:[,:}\]]|//|#|/\*|\Z))"  # what stands behind a text: a mark that it does not stand behind is part of it
_STRING = re.compile(rf"""\"((?:[^"\\]|\\.|"(?!{_ENDS}))*)\"|'((?:[^'\\]|\\.|'(?!{_ENDS}))*)'""", re.DOTALL)
_WORD = re.compile(r"[+-]?[\w.]+(?:[eE][+-]?\d+)?")
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_ESCAPED = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f"}
_WORDS = {"true": True, "false": False, "null": None, "none": None}
_DEEPEST = 16


def read_object(text: str, start: int) -> tuple[dict[str, Any], int]:
    """Return the object that begins with the brace at `start`, its names in small letters, and the place behind it.

    Raises:
        ValueError: there is none, it is nested too deeply, or it says two things of one name.
    """
    reader = _Reader(text, start)
    return reader.mapping(0), reader.place


class _Reader:
    """Reads values one after another."""

    def __init__(self, text: str, place: int) -> None:
        self._text, self.place = text, place

    def mapping(self, depth: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        self._expect("{")
        while not self._ends("}"):
            name = self._string_or_word()
            self._expect(":")
            value = self._value(depth + 1)
            if found.setdefault(str(name).lower(), value) != value:
                raise ValueError(f"{name} twice")
            self._separate("}")
        return found

    def _value(self, depth: int) -> Any:
        if depth > _DEEPEST:
            raise ValueError("nested too deeply")
        mark = self._peek()
        if mark == "{":
            return self.mapping(depth)
        return self._list(depth) if mark == "[" else self._string_or_word()

    def _list(self, depth: int) -> list[Any]:
        found: list[Any] = []
        self._expect("[")
        while not self._ends("]"):
            found.append(self._value(depth + 1))
            self._separate("]")
        return found

    def _string_or_word(self) -> Any:
        self._skip()
        if string := _STRING.match(self._text, self.place):
            self.place = string.end()
            return whole_characters(_ESCAPE.sub(_unescaped, string[1] if string[1] is not None else string[2]))
        word = _WORD.match(self._text, self.place)
        if not word:
            raise ValueError(f"no value at {self.place}")
        self.place = word.end()
        return _meaning(word[0])

    def _peek(self) -> str:
        self._skip()
        return self._text[self.place : self.place + 1]

    def _expect(self, mark: str) -> None:
        if self._peek() != mark:
            raise ValueError(f"no {mark} at {self.place}")
        self.place += 1

    def _ends(self, mark: str) -> bool:
        if self._peek() != mark:
            return False
        self.place += 1
        return True

    def _separate(self, end: str) -> None:
        """Pass a comma, which stands between two values and may stand behind the last one."""
        if self._peek() != end:
            self._expect(",")

    def _skip(self) -> None:
        space = _SPACE.match(self._text, self.place)
        self.place = space.end() if space else self.place


def _meaning(word: str) -> Any:
    if word.lower() in _WORDS:
        return _WORDS[word.lower()]
    try:
        return float(word) if any(mark in word for mark in ".eE") else int(word)
    except ValueError:
        return word


def _unescaped(found: re.Match[str]) -> str:
    escape = found[1]
    return chr(int(escape[1:], 16)) if len(escape) > 1 else _ESCAPED.get(escape, escape)
