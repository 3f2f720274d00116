"""Tombstones of forgotten data: `forgotten.json`, which the machines of a home share. It holds no ids, only salted digests of them.

The file can tell whether a known id was forgotten, but does not reveal ids.
"""

from __future__ import annotations

import hashlib
import json
import re
import secrets
from collections import defaultdict
from contextlib import suppress
from functools import cached_property, reduce
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from clawpipe.core.store.files import write_atomic
from clawpipe.core.store.home import Home
from clawpipe.core.store.home_file import ChangedError, HomeFile
from clawpipe.core.store.machines import shared_objects
from clawpipe.data.forgotten.subject import Kind, Subject, session_name
from clawpipe.errors import BusyError, DataError

_FILE, _COPY = "forgotten.json", "forgotten.shared.json"
_OF_KEY = re.compile(r'"key"\s*:\s*"((?:[^"\\]|\\.){1,64})"')
_STRING = re.compile(r'"((?:[^"\\]|\\.){1,512})"')
REASON = "forgotten"  # the reason to reject a row that is read again


class SeenBy(BaseModel):
    """A registered model version that was trained on forgotten rows."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    version: str
    night: str
    rows: int = Field(description="rows that taught it, or a model that it started from")

    @property
    def uri(self) -> str:
        return f"models:/{self.name}/{self.version}"


class Tombstone(BaseModel):
    """The tombstone of one subject."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: Kind
    digest: str = Field(description="sha256 of salt, kind and id")
    key: str | None = Field(default=None, description="name of the key with which the session was captured; None: of any")
    sessions: tuple[str, ...] = Field(
        default=(), description="digests of sessions that go along; of a user those of rows that name nobody"
    )
    rows: tuple[str, ...] = Field(default=(), description="digests of the rows' ids, if the subject named rows and not their owner")
    date: str
    trajectories: int
    replaced: dict[str, str] = Field(description="digests of datasets: the one with the rows, the one without")
    models: tuple[SeenBy, ...]

    def joined(self, later: Tombstone) -> Tombstone:
        """Merge with a later tombstone of the same id: the result of a killed run, and rows found since."""
        found = (*self.models, *later.models)
        most = {model.uri: model for model in sorted(found, key=lambda model: model.rows)}
        return self.model_copy(
            update={
                "date": later.date,
                "sessions": tuple(sorted({*self.sessions, *later.sessions})),
                "rows": tuple(sorted({*self.rows, *later.rows})),
                "trajectories": max(self.trajectories, later.trajectories),
                "replaced": self.replaced | later.replaced,
                "models": tuple(most[uri] for uri in dict.fromkeys(model.uri for model in found)),
            }
        )


class Tombstones(BaseModel):
    """All tombstones of a home."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    salt: str = Field(default_factory=lambda: secrets.token_hex(32))
    stones: tuple[Tombstone, ...] = ()

    def digest(self, kind: str, identity: str) -> str:
        return hashlib.sha256(f"{self.salt}/{kind}/{identity}".encode(errors="surrogatepass")).hexdigest()

    def covers(self, session: str | None, user: str | None, key: str | None = None) -> bool:
        """Whether a conversation of this session, user and key was forgotten; None stands for an unknown one."""
        if not self.stones:
            return False
        names = {session, session_name(key, session)} if session else set[str]()
        of_session = {self.digest("session", name) for name in names}
        if user and self.digest("user", user) in self._named:
            return True
        keyed = (stone for digest in of_session for stone in self._named.get(digest, ()) if stone.key in (None, key))
        return any(stone.digest in of_session or stone.kind == "session" or not user for stone in keyed)

    def covers_row(self, name: str) -> bool:
        """Whether a row with this id was forgotten. Ids are digests of contents, so a row that is read again has the same id."""
        return bool(self._rows) and self.digest("row", name) in self._rows

    @cached_property
    def _named(self) -> dict[str, list[Tombstone]]:
        """The stones by digest, their own or that of a session which goes along: rows are many, and stones may be thousands."""
        found = defaultdict[str, list[Tombstone]](list)
        for stone in self.stones:
            for digest in {stone.digest, *stone.sessions}:
                found[digest].append(stone)
        return dict(found)

    @cached_property
    def _rows(self) -> frozenset[str]:
        return frozenset(row for stone in self.stones for row in stone.rows)

    def mentioned_in(self, text: str) -> bool:
        """Whether a string in a JSON text, complete or truncated, is a forgotten id."""
        if not self.stones:
            return False
        strings = {_unquoted(found) for found in _STRING.findall(text)}
        keys = {None, *map(_unquoted, _OF_KEY.findall(text))}
        return any(self.covers(one, None, key) or self.covers(None, one) for one in strings for key in keys)

    def stone(self, subject: Subject) -> Tombstone | None:
        """Return the tombstone of a subject; of a session without a key that of any key."""
        digest = self.digest(subject.kind, subject.id)
        found = (stone for stone in self.stones if stone.digest == digest)
        return next((stone for stone in found if subject.key is None or stone.key in (None, subject.key)), None)

    def with_stone(self, stone: Tombstone) -> Tombstones:
        """Return a copy with one more; tombstones of one id and key are merged."""
        known = {(known.digest, known.key): known for known in self.stones}
        name = stone.digest, stone.key
        known[name] = known[name].joined(stone) if name in known else stone
        return Tombstones(salt=self.salt, stones=tuple(known.values()))  # a copy would keep what was looked up in this one

    def rows_of(self, uri: str) -> int:
        """Return the number of forgotten rows that a model version was trained on."""
        return sum(model.rows for stone in self.stones for model in stone.models if model.uri == uri)


def _unquoted(literal: str) -> str:
    try:
        return json.loads(f'"{literal}"')
    except ValueError:
        return literal


def tombstones_path(home: Home) -> Path:
    """Return the list on this machine; where several share the home, a copy of theirs, as old as the last reading of it."""
    return home.root / (_COPY if shared_objects() and not home.is_of_a_sweep else _FILE)


def read_tombstones(home: Home) -> Tombstones:
    """Read the tombstones of a home; none if there is no file.

    Raises:
        DataError: the file is damaged, so that forgotten rows cannot be recognised.
        BusyError: machines share the home, and their storage does not answer.
    """
    return _read(home, HomeFile(home, _FILE))


def known_tombstones(home: Home) -> Tombstones:
    """Read the tombstones that this machine knows, without asking a storage.

    Raises:
        DataError: the file is damaged.
    """
    path = tombstones_path(home)
    return _parsed(path.read_bytes() if path.exists() else None, str(path))


def write_tombstones(home: Home, stones: Tombstones) -> None:
    """Add tombstones to those of the home; what other machines add meanwhile stays.

    Raises:
        BusyError: another machine has begun a list of its own meanwhile.
    """
    while True:
        file = HomeFile(home, _FILE)
        known = _read(home, file)
        if known.stones and known.salt != stones.salt:
            raise BusyError("another machine has forgotten something meanwhile", file.where, "run the command again")
        new = (stone for stone in stones.stones if stone not in known.stones)
        joined = reduce(Tombstones.with_stone, new, known) if known.stones else stones
        with suppress(ChangedError):
            file.write(joined.model_dump_json(indent=1).encode())
            break
    _read(home, file)


def _read(home: Home, file: HomeFile) -> Tombstones:
    """Read the list. The machine keeps a copy of a shared one."""
    data = file.read()
    path = tombstones_path(home)
    if data and path.name == _COPY and not (path.exists() and path.read_bytes() == data):
        write_atomic(path, data)
    return _parsed(data, file.where)


def _parsed(data: bytes | None, where: str) -> Tombstones:
    try:
        return Tombstones() if data is None else Tombstones.model_validate_json(data)
    except ValidationError as error:
        raise DataError(f"the list of what was forgotten is damaged: {error.errors()[0]['msg']}", where, "restore it") from None
