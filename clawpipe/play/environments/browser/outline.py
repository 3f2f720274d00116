"""A page as text: its accessibility tree, one element a line, each with a number that actions name.

1 heading "Sign in"
2 textbox "Name": Ada
3 checkbox "Stay" checked
4 button "OK"
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

_LINE = re.compile(
    r'(?P<role>[a-z]+)(?: (?P<name>"(?:[^"\\]|\\.)*"|/.*?/))?(?P<marks>(?: \[[^\]]*\])*)(?P<colon>:)?(?: (?P<text>.*))?$'
)
_MARK = re.compile(r"\[([^\]=]+)(?:=([^\]]*))?\]")
_SILENT = {"ref", "cursor", "level", "box"}  # marks that say nothing to who acts
_BOXES = {"generic", "paragraph", "group", "list", "listitem", "table", "rowgroup", "row", "none", "presentation", "main"}


class _Element(NamedTuple):
    """An element of an aria snapshot. `ref` is "" for a bare text."""

    role: str
    name: str
    text: str
    marks: tuple[str, ...]
    ref: str
    is_clickable: bool

    @property
    def is_box(self) -> bool:
        """Whether it only holds others."""
        return self.role in _BOXES and not (self.name or self.text or self.is_clickable)

    def shown(self, number: int) -> str:
        role = self.role if self.role not in _BOXES else "clickable" if self.is_clickable else "text"
        name = f" {json.dumps(self.name, ensure_ascii=False)}" if self.name else ""
        text = f": {self.text}" if self.text else ""
        return f"{number} " * bool(self.ref) + role + name + "".join(f" {mark}" for mark in self.marks) + text


@dataclass(frozen=True)
class Outline:
    """A page as text.

    Attributes:
        references: of the numbered elements, for Playwright's `aria-ref`; number 1 is the first.
    """

    text: str
    references: tuple[str, ...]

    @classmethod
    def of(cls, snapshot: str, characters: int, without: str = "") -> Outline:
        """Return the outline of an aria snapshot in Playwright's mode "ai".

        Args:
            characters: longest text; elements beyond it are counted in a last line.
            without: a text that is not shown, since the policy knows it.
        """
        references: list[str] = []
        lines: list[str] = []
        for element in _without_echoes(snapshot, without):
            references += [element.ref] if element.ref else []
            lines.append(element.shown(len(references)))
        return cls(_bounded(lines, characters), tuple(references))


def _bounded(lines: list[str], characters: int) -> str:
    kept = list[str]()
    for place, line in enumerate(lines):
        characters -= len(line) + 1
        if characters < 0:
            return "\n".join([*kept, f"({len(lines) - place} more lines)"])
        kept.append(line)
    return "\n".join(kept) or "(an empty page)"


def _without_echoes(snapshot: str, known: str) -> Iterator[_Element]:
    """Yield what is to be shown; the text of a label that follows the element of this name says nothing new."""
    last = ""
    for element in _elements(snapshot):
        text = element.text or element.name
        echo = element.role == "text" and element.text == last
        if not (element.is_box or echo or (known and _plain(text) == _plain(known))):
            yield element
        last = element.name


def _plain(text: str) -> str:
    return " ".join(text.split())


def _elements(snapshot: str) -> Iterator[_Element]:
    for line in snapshot.splitlines():
        if (match := _LINE.match(_unquoted(line.strip().removeprefix("- ")))) is None:
            continue  # a property such as /url
        marks = dict[str, str](_MARK.findall(match["marks"]))
        shown = tuple(name if not value else f"{name}={value}" for name, value in marks.items() if name not in _SILENT)
        is_clickable = marks.get("cursor") == "pointer"
        name, text = _string(match["name"] or ""), _string(match["text"] or "")
        yield _Element(match["role"], name, text, shown, marks.get("ref", ""), is_clickable)


def _unquoted(line: str) -> str:
    """Return a line whose key YAML has put into quotes, without them."""
    if not line.startswith("'"):
        return line
    key = re.match(r"'((?:[^']|'')*)'(.*)$", line)
    return key[1].replace("''", "'") + key[2] if key else line


def _string(text: str) -> str:
    """Return what a name or a value says, without the quotes of YAML or JSON."""
    if len(text) > 1 and text[0] == text[-1] == '"':
        try:
            return str(json.loads(text))
        except ValueError:
            return text[1:-1]
    return text[1:-1].replace("''", "'") if len(text) > 1 and text[0] == text[-1] == "'" else text
