"""Who or what is asked about: one session, or all of one user's."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass

from clawpipe.errors import ConfigError


@dataclass(frozen=True)
class Subject:
    """A session id or a user id, as the source calls it.

    Raises:
        ConfigError: neither is given, or both, or it is empty.
    """

    session: str | None = None
    user: str | None = None

    def __post_init__(self) -> None:
        if bool(self.session) == bool(self.user) or "" in (self.session, self.user):
            raise ConfigError("one session or one user has to be named", fix="give --session ID or --user ID, not both")

    @property
    def kind(self) -> str:
        return "session" if self.session else "user"

    @property
    def id(self) -> str:
        return self.session or self.user or ""


def pattern_of(ids: Iterable[str], joints: str = "_-") -> str:
    """A regular expression, for RE2 and for Python, that finds one of the ids as a word of its own, plain or as JSON writes it.

    Args:
        ids: whom to find.
        joints: what makes one word of two; in names of files nothing does: "sessions_ann-2026.jsonl" names ann.
    """
    return "|".join(_whole_word(spelling, joints) for identity in ids for spelling in spellings(identity))


def spellings(identity: str) -> list[str]:
    """An id as it is, and as JSON writes it."""
    return list(dict.fromkeys([identity, *(json.dumps(identity, ensure_ascii=ascii_)[1:-1] for ascii_ in (False, True))]))


def _whole_word(text: str, joints: str) -> str:
    """`text` where neither a letter, a digit nor a joint touches it."""
    return f"(?:^|[^A-Za-z0-9{joints}]){re.escape(text)}(?:$|[^A-Za-z0-9{joints}])"
