"""How checks read answers: as words, and as a number."""

from __future__ import annotations

import math
import re
import unicodedata

_SIGNS = dict.fromkeys(map(ord, "\u2212\uff0d\ufe63\u2010\u2011\u2012\u2013"), "-") | {
    0xFF0B: "+",
    0xFF0E: ".",
    0xFF0C: ",",
    0x066B: ".",
}
# Between thousands: comma, underscore, apostrophes, spaces that do not break a line, the Arabic separator, LaTeX's {,} and \,
_SEPARATOR = r"[,_'\u2019\u00a0\u2007\u2009\u202f\u066c]|\{,\}|\\,"
_WHOLE = rf"[0-9]{{1,3}}(?:(?P<separator>{_SEPARATOR})[0-9]{{3}})(?:(?P=separator)[0-9]{{3}})*(?![0-9])|[0-9]+"
_NUMBER = re.compile(
    rf"(?<![\w.])(?P<sign>[-+]?)[$\u20ac\u00a3\u00a5]?(?P<digits>(?:{_WHOLE})(?:\.[0-9]+)?|\.[0-9]+)(?P<power>[eE][-+]?[0-9]+)?"
)
_SEPARATORS = re.compile(_SEPARATOR)

# A word is an article where another word follows it. None are the answers "A", "A, C" and "vitamin A", an A that "is" something,
# and a capital one in the middle of a sentence, unless it is in a title.
_NO_NOUN = r"and|or|is|was|because|since|as"
_ARTICLE = re.compile(
    rf"""(?<![\w-])(?:
        (?i:an|the)(?=\s+\w)
        | a(?=[^\S\n]+\w\w)
        | A(?=[^\S\n]+\w\w)(?!(?<=[\w,;:]\s.)\s+[a-z])
    )(?!\s+(?i:{_NO_NOUN})\b)\b""",
    re.VERBOSE,
)
_OF_NUMBER = r"(?<![^\W\d])\.(?=\d)|(?<!\w)-(?=\.?\d)"  # its point and its minus
_JOINT = r"['\u2019.-]|(?<=\d),(?=\d)"  # goes, and leaves one word: don't, U.S.A., 1,000
_PUNCTUATION = re.compile(rf"(?P<number>{_OF_NUMBER})|(?P<joint>{_JOINT})|[^\w\s]|_")


def normal(text: str) -> str:
    """Return a text in small letters without punctuation, articles and superfluous white space, as SQuAD compares answers.

    An article goes only where a word follows it, so that the answer "A" stays. The point and the minus of a number stay as well.
    """
    plain = _ARTICLE.sub(" ", unicodedata.normalize("NFKC", text)).translate(_SIGNS).casefold()
    return " ".join(_PUNCTUATION.sub(lambda found: found["number"] or ("" if found["joint"] else _mark(found[0])), plain).split())


def is_blank(text: str) -> bool:
    """Return whether nothing of a text can be seen."""
    return not any(char.isprintable() and not char.isspace() for char in text)


def is_number(text: str) -> bool:
    """Return whether a text is a number and nothing else, as `last_number` reads it."""
    return _NUMBER.fullmatch(_plain_digits(text.strip())) is not None and last_number(text) is not None


def last_number(text: str) -> float | None:
    """Return the last number of a text; None if there is none.

    A minus may be written as U+2212 or as an en dash, digits in any script; a comma, an underscore, an apostrophe or a space that
    does not break the line may stand between thousands.
    """
    found = list(_NUMBER.finditer(_plain_digits(text)))
    if not found:
        return None
    number = float(found[-1]["sign"] + _SEPARATORS.sub("", found[-1]["digits"]) + (found[-1]["power"] or ""))
    return number if math.isfinite(number) else None


def _mark(char: str) -> str:
    """Return a space for punctuation, nothing for what cannot be seen; other marks, such as a degree sign, stay."""
    if char in "$+<=>^`|~" or unicodedata.category(char).startswith("P"):
        return " "
    return char if char.isprintable() else ""


def _plain_digits(text: str) -> str:
    return text if text.isascii() else "".join(map(_digit, text.translate(_SIGNS)))


def _digit(char: str) -> str:
    value = unicodedata.decimal(char, None)
    return char if value is None else str(value)
