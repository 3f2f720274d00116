"""Calibrate a judge: let it judge conversations on which people have spoken; one that does not agree with them stops the night."""

from __future__ import annotations

import logging
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from itertools import combinations
from typing import NamedTuple

from clawpipe.core.basics.json_types import JsonObject, Row
from clawpipe.core.store.digests import sha256_json
from clawpipe.data.importers.read.reading import Reading
from clawpipe.data.importers.record import Conversation, Judgement
from clawpipe.errors import ConfigError
from clawpipe.play.judging.base import ROLLOUT
from clawpipe.play.judging.files import conversations_of, rejected_lines
from clawpipe.play.judging.report import kappa_of

log = logging.getLogger("clawpipe.judging")
FEWEST = 10  # verdicts of a judge, below which nothing is known of it
_FIX = "choose another judge, write a rubric, or look at the file: `clawpipe judge try FILE` shows what a judge says of it"


class Calibrated(NamedTuple):
    """A conversation with a person's verdict on the whole, good or not."""

    row: JsonObject
    good: bool


def calibration_of(file: str) -> list[Calibrated]:
    """Return the conversations of a file, in any format that `clawpipe ingest` reads, with a person's verdict.

    A conversation that stands in the file twice counts once, by what most people said of it.

    Raises:
        ConfigError: too few have one.
    """
    reading, rows, said = Reading(), dict[str, JsonObject](), Counter[str]()
    for one, row in conversations_of(file, reading):
        key = sha256_json([row["messages"], row["tools"]])
        rows.setdefault(key, row)
        said[key] += _verdict(one)
    found = [Calibrated(_named(row), said[key] > 0) for key, row in rows.items() if said[key]]
    if unread := rejected_lines(reading):
        log.warning("%s: %s", file, unread)
    if len(found) < FEWEST:
        what = f"{len(found)} different conversations have a person's verdict, and {FEWEST} are needed"
        raise ConfigError("; ".join(filter(None, [what, unread])), file, "docs/judges.md")
    return found


def require_agreement(name: str, known: Sequence[tuple[bool, bool]], asked: int, floor: float, what: str) -> None:
    """Check that a judge agrees with people.

    Args:
        known: what the judge says and what people say, of each of `asked` that the judge has a verdict on.
        what: these are, in the plural.

    Raises:
        ConfigError: its kappa is below the floor.
    """
    if len(known) < FEWEST:
        what = f"the judge has a verdict on {len(known)} of {asked} calibration {what}, and {FEWEST} are needed"
        raise ConfigError(what, name, _FIX)
    n, agree, kappa = kappa_of(known)
    if kappa is None or kappa < floor:
        said = "none, since one side always says the same" if kappa is None else f"{kappa:.2f}"
        what = f"the judge agrees with people on {agree:.2f} of {n} calibration {what}: kappa {said}, and the floor is {floor:g}"
        raise ConfigError(what, name, _FIX)


def ordered_pairs(known: Sequence[Calibrated], value: Callable[[Row], float | None]) -> Iterator[tuple[bool, bool]]:
    """Yield each pair of attempts at one question of which people and the judge prefer one: who prefers the first."""
    groups: defaultdict[str, list[Calibrated]] = defaultdict(list)
    for one in known:
        groups[one.row["group_id"]].append(one)
    for members in groups.values():
        for place, (one, other) in enumerate(combinations(members, 2)):
            mine, theirs = value(one.row), value(other.row)
            if one.good != other.good and mine is not None and theirs is not None and mine != theirs:
                pair = (mine > theirs, one.good)
                yield pair if place % 2 else (not pair[0], not pair[1])  # neither side always prefers the first


def _verdict(conversation: Conversation) -> int:
    """Return 1 where people said that a conversation was good, of the whole, else of its turns, -1 where bad; 0: neither."""
    said = [one for one in conversation.judgements if one.origin == "user"]
    signs = [_sign(one) for one in [one for one in said if one.turn is None] or said]
    return (sum(signs) > 0) - (sum(signs) < 0)


def _sign(judgement: Judgement) -> int:
    if judgement.success is not None:
        return 1 if judgement.success else -1
    return (judgement.value > 0) - (judgement.value < 0)


def _named(row: JsonObject) -> JsonObject:
    group = {"group_id": sha256_json(_question(row["messages"]))}
    return row | group | {"trajectory_id": f"calibration-{row['trajectory_id']}"}


def as_rollouts(known: Sequence[Calibrated]) -> list[Row]:
    return [one.row | {"source": ROLLOUT} for one in known]


def _question(messages: Sequence[JsonObject]) -> Sequence[JsonObject]:
    end = next((place for place, message in enumerate(messages) if message["role"] == "assistant"), len(messages))
    return messages[:end]
