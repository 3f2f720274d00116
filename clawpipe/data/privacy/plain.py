"""Read texts as a person reads them: without characters that show nothing, and with full-width letters as ASCII.

A key that is split by a zero-width space, or written in the letters of a Japanese keyboard, is still a key. Rules are applied to
the plain text; what they find is replaced in the text itself.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence

_UNSEEN = (  # characters that show nothing, from the first to the last of each range
    *((0xAD, 0xAD), (0x34F, 0x34F), (0x61C, 0x61C), (0x115F, 0x1160), (0x17B4, 0x17B5), (0x180B, 0x180E), (0x200B, 0x200F)),
    *(
        (0x202A, 0x202E),
        (0x2060, 0x206F),
        (0x3164, 0x3164),
        (0xFE00, 0xFE0F),
        (0xFEFF, 0xFEFF),
        (0xFFA0, 0xFFA0),
        (0xE0000, 0xE007F),
    ),
)
_CLASS = "".join(f"{chr(first)}-{chr(last)}" for first, last in _UNSEEN)
_HIDDEN = re.compile(rf"[{_CLASS}]|\\+u(?:00ad|200[b-f]|202[a-e]|206[0-9a-f]|feff)", re.IGNORECASE)  # also as JSON spells them
_COMPATIBLE = ((0x2100, 0x2150), (0x2460, 0x24F0), (0xFE50, 0xFE70), (0xFF01, 0xFF5F), (0x1D400, 0x1D800))


def _table() -> dict[int, str]:
    """Return the characters that NFKC makes one character of ASCII, with that character; spaces of any width are spaces."""
    codes = [code for first, end in _COMPATIBLE for code in range(first, end)] + [0x3000, 0x00A0, 0x202F, *range(0x2000, 0x200B)]
    plain = {code: unicodedata.normalize("NFKC", chr(code)) for code in codes}
    return {code: one for code, one in plain.items() if len(one) == 1 and one.isascii() and one.isprintable()}


_TABLE = _table()
_UNUSUAL = frozenset(map(chr, _TABLE)) | {chr(code) for first, last in _UNSEEN for code in range(first, last + 1)}


def plain(text: str) -> str:
    """Return the text as it is read; the same object if nothing in it is unusual."""
    seen = text if "\\u" not in text else _HIDDEN.sub("", text)
    if seen.isascii() or _UNUSUAL.isdisjoint(seen):
        return seen
    return _HIDDEN.sub("", seen).translate(_TABLE)


def spliced(text: str, pieces: Sequence[str], hidden: Sequence[str]) -> str:
    """Replace pieces of a text where `pieces` of its plain form differ from `hidden`; all else stays as it was written.

    Args:
        pieces: the plain text in pieces.
        hidden: the same pieces, some of them replaced.
    """
    places = _places(text)
    made, done, at = list[str](), 0, 0
    for before, after in zip(pieces, hidden, strict=True):
        if before != after:
            made += [text[done : places[at]], after]
            done = places[at + len(before) - 1] + 1
        at += len(before)
    return "".join([*made, text[done:]])


def _places(text: str) -> list[int]:
    """Return the index in the text of each character of its plain form."""
    kept, at = list[int](), 0
    for gap in _HIDDEN.finditer(text):
        kept += range(at, gap.start())
        at = gap.end()
    return [*kept, *range(at, len(text))]
