"""Split what a user said into clauses, without what is no word of the user to the assistant: quotes, code, pasted text, tags."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass, replace

_MOST = 2000  # characters that are looked at
_MOST_OF_LINE = 400
_MOST_CLAUSES = 8
_OPENING, _CLOSING = '"\u201c\u201e\u00ab\u2039\u300c\u300e', '"\u201c\u201d\u00bb\u203a\u300d\u300f'
QUOTE = "\u25a1"  # stands for what was quoted: a word that no list knows
_STRAIGHT = str.maketrans({"\u2019": "'", "\u2018": "'", "\u201a": "'", "\u2026": ".", "\u00bf": ". ", "\u00a1": ". "})
_FENCE = re.compile(r"^\s*(?:```|~~~)")
_NOT_SAID = re.compile(  # a quoted line, a row of a table, a line of a stack, a log or a test, a heading, a command, a comment
    r"^\s*(?:>|\||at \S+\(|#+ |\$ |-- |//|\d{4}-\d\d-\d\d[T ]\d\d:\d\d|\w+ \w[\w.-]*/\S+\.\w)"
)
_SMALL_QUOTE = re.compile(r"(?<!\w)'(?=\w)(?:[^'\n]|(?<=\w)'(?=\w))*'(?!\w)")  # an apostrophe in a word ends none
_SET = re.compile(r"\w ?=(?![DPpOo3](?!\w)) ?[\w']|\w\|\w|\w\(\w*\)")  # a=1, a|b, a(b): code that nobody marked
_POINTS_UP = re.compile(r"^\s*(?:\^|\u2191)", re.MULTILINE)
_AUTOMATIC = re.compile(r"^\s*(?:<|\[[^\]\n]{1,40}\]|\u3010|\{)")  # tags, [cron], [heartbeat], 【...】, JSON
_CODE = re.compile(r"`[^`\n]*`")
_LABEL = re.compile(r"[:\uff1a](?!\d|\))")
_MARKS = re.compile(r"[.!?;]+(?=\s|$)|[\u3002\uff01\uff1f\uff1b?!]+|[,\uff0c\u3001()]|\s[-\u2013\u2014]+\s|\u2014")
_WORD = re.compile(r"[\u3040-\u30ff\u3400-\u9fff]|[^\W_\u3040-\u30ff\u3400-\u9fff]+(?:'[^\W_]+)*'?|" + QUOTE)
_LONG_DRAWN = re.compile(r"(.)\1{2,}")
_ASKED = "?\uff1f"


@dataclass(frozen=True)
class Clause:
    """A clause in words; those of scripts without spaces are single characters.

    Attributes:
        asks: whether a question mark ends it.
        announces: whether a colon ends it, so that it may be the name of what follows.
    """

    words: tuple[str, ...]
    asks: bool = False
    announces: bool = False


def said_by_user(text: str) -> str:
    """Return the first line of a message that is the user's own; "" if there is none, or a program wrote the message."""
    text = text[:_MOST].translate(_STRAIGHT)
    if _AUTOMATIC.match(text):
        return ""
    return next(_own_lines(text), "")[:_MOST_OF_LINE]


def said_later(text: str) -> str:
    """Return the user's own lines after the first."""
    _, *others = [*_own_lines(text[:_MOST].translate(_STRAIGHT)), ""]
    return "\n".join(others)


def points_up(text: str) -> bool:
    """Whether a line begins with a sign that points at what stands above it."""
    return _POINTS_UP.search(text) is not None


def clauses_of(line: str) -> list[Clause]:
    """Return the first clauses of a line, up to a colon: what follows one is a text to work on, or what would have been right."""
    label = _LABEL.search(line)
    head = line if label is None else line[: label.start()]
    clauses = list(_split(head))
    if label and clauses:
        clauses[-1] = replace(clauses[-1], announces=True)
    return clauses[:_MOST_CLAUSES]


def words_of(text: str) -> tuple[str, ...]:
    """Return the words of a text in small letters; letters that are drawn out count once."""
    plain = unicodedata.normalize("NFKC", text).translate(_STRAIGHT).casefold()
    return tuple(_WORD.findall(_LONG_DRAWN.sub(r"\1", plain)))


def _own_lines(text: str) -> Iterator[str]:
    fenced = False
    for line in _without_quotes(text).splitlines():
        if _FENCE.match(line):
            fenced = not fenced
        elif not fenced and line.strip() and not _NOT_SAID.match(line):
            yield line


def _without_quotes(text: str) -> str:
    """Return the text with a sign in place of quotations and code; a quotation that nobody closes goes on to the end."""
    pieces, place = [], 0
    text = _CODE.sub(QUOTE, text) if "```" not in text else text
    text = _SET.sub(QUOTE, _SMALL_QUOTE.sub(QUOTE, text))
    while (start := next((at for at in range(place, len(text)) if text[at] in _OPENING), None)) is not None:
        pieces += [text[place:start], QUOTE]
        end = next((at for at in range(start + 1, len(text)) if text[at] in _CLOSING), len(text))
        place = end + 1
    return "".join([*pieces, text[place:]])


def _split(line: str) -> Iterator[Clause]:
    place = 0
    for mark in [*_MARKS.finditer(line), None]:
        words = words_of(line[place : mark.start() if mark else len(line)])
        if words:
            yield Clause(words, bool(mark) and any(sign in _ASKED for sign in mark[0]))
        place = mark.end() if mark else len(line)
