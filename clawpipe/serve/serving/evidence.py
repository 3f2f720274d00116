"""How the answers of a version end and are liked, and whether it is worse than the one before it.

Whoever holds a key can make any answer a bad one, and call any answer bad. So no key decides alone where several ask, one session
says little, and an answer that ended at its client's own limit says nothing of the version but that it answered.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

OF_SESSION, RATINGS_OF_SESSION = 5, 2  # answers and ratings of one session that count, the first ones
MORE_BAD = 0.2  # a version goes back when the share of a kind of bad answers is this much above the old one's
_MOST_SESSIONS = 10_000  # of a version, whose answers are counted
_BAD = ("failed", "empty", "runaway")


class Asker(NamedTuple):
    """Who asked: the client's key, and the session; "" is no session."""

    key: str = ""
    session: str = ""


class Least(NamedTuple):
    """The counts below which nothing is said: of answers, of ratings, and of keys that gave the ratings."""

    answers: int
    ratings: int
    raters: int


LEAST = Least(20, 10, 2)
OF_OTHERS = Least(5, 3, 1)  # without the key that asked or rated most


@dataclass
class Answers:
    """Counts of answers: all, those that failed, were empty or ran on to the model's own limit; of feedback on them, and of the
    keys that gave it; and of answers that were cut at their clients' own limits, which are neither empty nor runaway."""

    total: int = 0
    failed: int = 0
    empty: int = 0
    runaway: int = 0
    rated: int = 0
    disliked: int = 0
    raters: int = 0
    cut: int = 0

    def __add__(self, other: Answers) -> Answers:
        return Answers(**{name: value + getattr(other, name) for name, value in vars(self).items()})

    def among(self, kind: str) -> int:
        """Return the number of answers that tell whether they are of a kind."""
        return self.total - (0 if kind == "failed" else self.cut)

    def share(self, kind: str, least: int) -> float | None:
        """Return the share of a kind of bad answer; None of fewer than `least` answers."""
        return getattr(self, kind) / self.among(kind) if self.among(kind) >= least else None


class Evidence:
    """Counts of a version's answers by the keys of those who asked.

    Attributes:
        seen: number of all answers, also of those that do not count.
    """

    def __init__(self) -> None:
        self.seen = 0
        self._by_key: defaultdict[str, Answers] = defaultdict(Answers)
        self._of_session: Counter[tuple[Asker, str]] = Counter()

    @property
    def keys(self) -> set[str]:
        return {*self._by_key}

    def all(self, but: str | None = None) -> Answers:
        """Return the counts of all keys, or of all but one."""
        return sum((counts for key, counts in self._by_key.items() if key != but), Answers())

    def answer(self, kinds: Mapping[str, bool], asker: Asker) -> None:
        """Count an answer by the kinds that it is of, which are fields of `Answers`."""
        self.seen += 1
        if self._counts(asker, "answers", OF_SESSION):
            counts = self._by_key[asker.key]
            for kind, is_one in kinds.items():
                setattr(counts, kind, getattr(counts, kind) + is_one)

    def rate(self, is_liked: bool, asker: Asker) -> None:
        """Count feedback on an answer."""
        if self._counts(asker, "ratings", RATINGS_OF_SESSION):
            counts = self._by_key[asker.key]
            counts.rated, counts.disliked, counts.raters = counts.rated + 1, counts.disliked + (not is_liked), 1

    def _counts(self, asker: Asker, what: str, most: int) -> bool:
        """Whether one more of a session counts. Requests without a session are one each."""
        if not asker.session:
            return True
        self._of_session[asker, what] += 1
        if len(self._of_session) > _MOST_SESSIONS:
            del self._of_session[next(iter(self._of_session))]
        return self._of_session[asker, what] <= most


def worse(new: Answers, old: Answers, least: Least = LEAST) -> str:
    """Return the kind of bad answers of which the new version has a larger share, in a sentence; "" if there is none."""
    enough = min(new.rated, old.rated) >= least.ratings and new.raters >= least.raters
    if enough and new.disliked / new.rated > old.disliked / old.rated + MORE_BAD:
        return (
            f"{new.disliked / new.rated:.0%} of {new.rated} ratings are negative, "
            f"{old.disliked / old.rated:.0%} of {old.rated} before"
        )
    for kind in _BAD:
        share, known = new.share(kind, least.answers), old.share(kind, least.answers)
        if kind == "failed" and known is None:
            known = 0.0
        if share is not None and known is not None and share > known + MORE_BAD:
            return f"{share:.0%} of {new.among(kind)} answers are {kind}, {known:.0%} of {old.among(kind)} before"
    return ""
