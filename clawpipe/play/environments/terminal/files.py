"""Files of a sandbox's working folder as JSON: what a task begins with, what it ends with, and whether that is what was wanted."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterable, Mapping
from typing import TypeAlias

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.play.sandbox.base import Sandbox, restore

Entry: TypeAlias = "JsonObject | None"  # {"text": ..., "executable": ...}, {"link": target}, {"folder": true}; None: nothing
Tree: TypeAlias = "Mapping[str, Entry]"  # by path, relative to the working folder

FOLDER: JsonObject = {"folder": True}
_MOST = 1 << 19  # bytes of what is looked at
# Links are stored as links, and what is no file comes back as nothing.
_LOOK = 'for path; do if [ -e "$path" ] || [ -L "$path" ]; then printf "%s\\0" "$path"; fi; done | '
_PACK = "tar --null --verbatim-files-from --no-recursion -T - -cf -"


def text(content: str, *, executable: bool = False) -> JsonObject:
    """Return a file of text."""
    return {"text": content, "executable": executable}


def link(target: str) -> JsonObject:
    """Return a symbolic link."""
    return {"link": target}


def write(sandbox: Sandbox, tree: Tree) -> None:
    """Make the working folder what `tree` says, and nothing else; folders of its paths are made.

    Raises:
        DataError: it does not fit.
    """
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as archive:
        for path, entry in tree.items():
            if entry is not None:
                content = entry.get("text", "").encode()
                archive.addfile(_header(path, entry, len(content)), io.BytesIO(content))
    restore(sandbox, data.getvalue())


def look(sandbox: Sandbox, paths: Iterable[str]) -> Tree:
    """Return what lies at these paths; nothing of any of them where it is too much to look at."""
    wanted = list(paths)
    result = sandbox.exec(["/bin/sh", "-c", _LOOK + _PACK, "look", *wanted], output_bytes=_MOST)
    found: dict[str, Entry] = dict.fromkeys(wanted)
    if result.code == 0:
        with tarfile.open(fileobj=io.BytesIO(result.stdout)) as archive:
            found |= {member.name: _entry(archive, member) for member in archive if member.name in found}
    return found


def equal(found: Entry, wanted: Entry) -> bool:
    """Whether two entries are equal; white space at the end of a text does not count."""
    if found is None or wanted is None or "text" not in found or "text" not in wanted:
        return found == wanted
    return {**found, "text": found["text"].rstrip()} == {**wanted, "text": wanted["text"].rstrip()}


def _header(path: str, entry: JsonObject, size: int) -> tarfile.TarInfo:
    header = tarfile.TarInfo(path)
    header.size, header.mode = size, 0o755 if entry.get("executable") or "folder" in entry else 0o644
    if "link" in entry:
        header.type, header.linkname = tarfile.SYMTYPE, entry["link"]
    elif "folder" in entry:
        header.type = tarfile.DIRTYPE
    return header


def _entry(archive: tarfile.TarFile, member: tarfile.TarInfo) -> Entry:
    if member.issym():
        return link(member.linkname.encode(errors="surrogateescape").decode(errors="replace"))
    if member.isdir():
        return dict(FOLDER)
    file = archive.extractfile(member) if member.isreg() else None
    return text(file.read().decode(errors="replace"), executable=bool(member.mode & 0o100)) if file else None
