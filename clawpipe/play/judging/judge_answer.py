"""Read what a judge answers: the objects in it that have the question's code, which must not contradict each other."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from clawpipe.data.wire.thoughts import after_thoughts
from clawpipe.play.judging.judge_prompt import JudgePrompt
from clawpipe.play.judging.lenient_json import read_object

_VALUES = (-1, 0, 1)
SHORTEST_HINT, LONGEST_HINT = 10, 400  # characters
_MOST_SENTENCES = 3
_SENTENCES = re.compile(r"[.!?]+(?:\s|$)|[\u3002\uff01\uff1f]+")
_MOST_CODES = 8  # in an answer: one that repeats its code more often is no verdict
_MOST_BRACES = 8  # before a code, at which its object may begin
_LONGEST_OBJECT = 8192  # characters
_TYPOGRAPHIC = str.maketrans({"\u201c": '"', "\u201d": '"', "\u201e": '"', "\u2212": "-", "\u2013": "-"})


@dataclass(frozen=True)
class Answer:
    """An answer as it was read: `value` None is no verdict. `ranks`: of a ranking, the place of each, the best is 0."""

    value: int | None
    hints: tuple[str, ...] = ()
    ranks: Mapping[str, int] | None = None


Reads = Callable[[str, JudgePrompt], Answer]


def read_verdict(text: str, prompt: JudgePrompt) -> Answer:
    """Read the answer to a question about a turn or two answers."""
    return read_answer(text, prompt.code)


def read_answer(text: str, code: str) -> Answer:
    """Read a verdict on a turn, or on two answers."""
    found = _agreed(text, code, lambda given: _verdict(given.get("verdict")))
    if found is None:
        return Answer(None)
    hints = found.get("hints")
    listed = [hints] if isinstance(hints, str) else hints if isinstance(hints, list) else []
    return Answer(_verdict(found["verdict"]), usable_hints([hint for hint in listed if isinstance(hint, str)]))


def read_ranking(text: str, prompt: JudgePrompt) -> Answer:
    """Read a ranking: all names, from the best on; those in a list of their own share a place."""
    found = _agreed(text, prompt.code, lambda given: _ranks(given.get("ranking")))
    ranks = _ranks(found["ranking"]) if found else None
    return Answer(0, ranks=ranks) if ranks and ranks.keys() == set(prompt.names) else Answer(None)


def usable_hints(hints: Sequence[str]) -> tuple[str, ...]:
    """Return the hints that can be shown to a policy: one to three sentences, neither too short nor too long, each once."""
    plain = [" ".join(hint.split()) for hint in hints]
    kept = {
        hint.casefold(): hint
        for hint in reversed(plain)
        if SHORTEST_HINT <= len(hint) <= LONGEST_HINT and len(_SENTENCES.findall(hint)) <= _MOST_SENTENCES
    }
    return tuple(reversed(kept.values()))


def _agreed(text: str, code: str, read: Callable[[Mapping[str, Any]], Any]) -> Mapping[str, Any] | None:
    """Return the last object with the code that `read` can read; None if there is none, or they do not all say the same."""
    answer = after_thoughts(text)
    found = list(_objects(answer, code)) or list(_objects(_plain(answer), code))
    said = [read(given) for given in found]
    readable = [given for given, one in zip(found, said, strict=True) if one is not None]
    is_one = len(readable) == len(found) > 0 and all(one == said[0] for one in said)
    return readable[-1] if is_one else None


def _plain(text: str) -> str:
    """Return a text with plain marks for typographic ones, and without the escapes of an object that stands in a text."""
    return text.translate(_TYPOGRAPHIC).replace('\\"', '"')


def _objects(text: str, code: str) -> Iterator[Mapping[str, Any]]:
    """Yield the objects around each place of the code; of objects in each other the innermost. An echo of the layout is none."""
    field = rf"""(?<!\w)code["']?\s*:\s*["']?{re.escape(code)}(?!\w)"""
    places = [found.start() for found in re.finditer(field, text, re.IGNORECASE)]
    if len(places) > _MOST_CODES:
        return
    passed = 0
    for place in places:
        if place < passed:
            continue
        given, end = _around(text, place, code)
        passed = max(end, passed)
        if given is not None:
            yield given


def _around(text: str, place: int, code: str) -> tuple[Mapping[str, Any] | None, int]:
    """Return the object in which the code stands at a place, and its end."""
    start = place
    for _ in range(_MOST_BRACES):
        start = text.rfind("{", max(place - _LONGEST_OBJECT, 0), start)
        if start < 0:
            break
        try:
            given, end = read_object(text[start : start + _LONGEST_OBJECT], 0)
        except ValueError:
            continue
        if end + start > place and str(given.get("code")).lower() == code.lower() and given.keys() - {"code"}:
            return given, end + start
    return None, place


def _verdict(value: Any) -> int | None:
    """Return 1, 0 or -1, whether written as a number or as a text."""
    if isinstance(value, str) and re.fullmatch(r"\s*[+-]?[01](?:\.0+)?\s*", value):
        value = float(value)
    if isinstance(value, bool) or not isinstance(value, int | float) or value not in _VALUES:
        return None
    return int(value)


def _ranks(value: Any) -> dict[str, int] | None:
    """Return the place of each name; None if the value is no ranking, or one stands in it twice."""
    places = [_names(one) for one in _listed(value)]
    ranks, before = dict[str, int](), 0
    for names in places:
        if not names or any(name in ranks for name in names) or len(set(names)) < len(names):
            return None
        ranks |= dict.fromkeys(names, before)
        before += len(names)
    return ranks or None


def _listed(value: Any) -> list[Any]:
    """Return the places of a ranking, also of one that is written "A > B = C"."""
    if isinstance(value, str) and ">" in value:
        return [place.split("=") for place in value.split(">")]
    return value if isinstance(value, list) else []


def _names(value: Any) -> list[str]:
    given = value if isinstance(value, list) else [value]
    plain = all(isinstance(one, str | int) and not isinstance(one, bool) for one in given)
    return [str(one).strip().upper() for one in given] if plain else []
