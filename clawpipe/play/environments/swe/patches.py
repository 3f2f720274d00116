"""The paths that a patch of git changes."""

from __future__ import annotations

import re
from collections.abc import Iterator

_PATH = re.compile(r'^(?:---|\+\+\+) (?:[ab]/(.+?)|"[ab]/(.+)")\t?\r?$', re.MULTILINE)
_MOVED = re.compile(r'^(?:rename|copy) (?:from|to) (?:(?!")(.+?)|"(.+)")\r?$', re.MULTILINE)
# A file without lines (empty, binary, of another mode) has this one alone; both halves are alike, but for moves.
_HEAD = re.compile(r'^diff --git (?:a/(.+) b/\1|"a/(.+)" "b/\2")\r?$', re.MULTILINE)
_ESCAPED = re.compile(rb"\\([0-7]{3}|.)")
_NAMED = {b"n": b"\n", b"t": b"\t", b"r": b"\r"}


def paths_of(patch: str) -> set[str]:
    """Return the paths that a patch changes: those of both sides of a move, too."""
    return set(_paths(patch))


def _paths(patch: str) -> Iterator[str]:
    for form in (_PATH, _MOVED, _HEAD):
        for plain, quoted in form.findall(patch):
            yield plain or _unquoted(quoted)


def _unquoted(path: str) -> str:
    """Return a path that git has put into quotes, with the bytes of other letters as octal numbers."""
    return _ESCAPED.sub(_letter, path.encode()).decode(errors="replace")


def _letter(found: re.Match[bytes]) -> bytes:
    code = found[1]
    return bytes([int(code, 8) & 255]) if len(code) == 3 else _NAMED.get(code, code)
