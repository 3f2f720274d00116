"""The subject of trace and forget: a session, a user, a trajectory, a source file, or rows with a text."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, get_args

from clawpipe.data.importers.sources.urls import is_url, name_of
from clawpipe.errors import ConfigError

Kind = Literal["session", "user", "trajectory", "source", "text"]
BESIDE = "\x1f"  # between a key and a session; no id holds it
SHORTEST_TEXT = 8  # characters; shorter texts are in anybody's messages


@dataclass(frozen=True)
class Subject:
    """Exactly one of: a session id or user id of the source; the id of a trajectory, preference pair or task item; a source file,
    by its name in `origin`; a text in messages, calls or fields. `key` narrows a session to the one that was captured with this
    key: clients of two keys may call their sessions the same.

    Raises:
        ConfigError: not exactly one is given, it is empty, a key is given without a session, or the text is shorter than
            `SHORTEST_TEXT`.
    """

    session: str | None = None
    user: str | None = None
    trajectory: str | None = None
    source: str | None = None
    text: str | None = None
    key: str | None = None

    def __post_init__(self) -> None:
        if len(self._given) != 1 or not self.id:
            raise ConfigError("one thing has to be named", fix=f"give one of {', '.join(f'--{kind}' for kind in get_args(Kind))}")
        if self.key is not None and not self.session:
            raise ConfigError("a key narrows a session", "--key", "give --session as well")
        if self.text and len(self.text.strip()) < SHORTEST_TEXT:
            raise ConfigError(f"a text of fewer than {SHORTEST_TEXT} characters is anybody's", repr(self.text), "give a longer one")
        if self.source and is_url(self.source):
            object.__setattr__(self, "source", name_of(self.source))

    @property
    def _given(self) -> list[tuple[Kind, str]]:
        return [(kind, value) for kind in get_args(Kind) if (value := getattr(self, kind)) is not None]

    @property
    def kind(self) -> Kind:
        return self._given[0][0]

    @property
    def id(self) -> str:
        return self._given[0][1]

    @property
    def name(self) -> str:
        """The id, of a session with the key that it is narrowed to."""
        return session_name(self.key, self.session) if self.session else self.id

    @property
    def names_rows(self) -> bool:
        """Whether the subject names rows themselves, and not their owner."""
        return self.kind in ("trajectory", "source", "text")


def session_name(key: str | None, session: str) -> str:
    """Return a name that tells the session of one key from that of another; the id alone stands for the sessions of all keys."""
    return f"{key}{BESIDE}{session}" if key else session


def session_of(name: str) -> str:
    """Return the id in a session's name."""
    return name.rpartition(BESIDE)[2]


def pattern_of(ids: Iterable[str], joints: str = "_-") -> str:
    """Return a regular expression, for RE2 and Python, that finds one of the ids as a whole word, plain or in JSON spelling.

    Args:
        ids: the ids to find.
        joints: characters that join words; empty for file names: "sessions_ann-2026.jsonl" names ann.
    """
    return "|".join(_whole_word(spelling, joints) for identity in ids for spelling in spellings(identity))


def spellings(identity: str) -> list[str]:
    """Return an id plain and in JSON spelling."""
    return list(dict.fromkeys([identity, *(json.dumps(identity, ensure_ascii=ascii_)[1:-1] for ascii_ in (False, True))]))


def _whole_word(text: str, joints: str) -> str:
    """Return a pattern for `text` without a letter, digit or joint beside it."""
    return f"(?:^|[^A-Za-z0-9{joints}]){re.escape(text)}(?:$|[^A-Za-z0-9{joints}])"
