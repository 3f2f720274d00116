"""Detect signs that a judge is gamed, or that it does not read the turns; a night warns of them."""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean, pvariance
from typing import Any

from clawpipe.json_types import JsonObject
from clawpipe.judging.exchanges import exchanges_of

_FEWEST = 30  # turns or trajectories, below which no sign is reported
_CONSTANT = 0.98  # share of one value
_LONGER = 2.0  # how many times as long praised turns are
_LONGER_WINS = 0.9  # share of the pairs of a group in which the longer one is ranked higher
_FLATTERING = 0.05  # share of turns
_FLATTERY = re.compile(
    r"\bdear (?:judge|evaluator|grader)\b|\b(?:as|for) (?:a|the) (?:judge|evaluator|grader)\b|\bverdict\W+\+?1"
    r"|\b(?:give|deserves?|rate|score) (?:me|this|it)\b.{0,20}(?:\+1|full|high|top|positive)",
    re.IGNORECASE | re.DOTALL,
)


class GamingSigns:
    """Counts what judges say, row by row; `warnings` says what looks wrong."""

    def __init__(self) -> None:
        self._values: defaultdict[str, Counter[float]] = defaultdict(Counter)
        self._lengths: defaultdict[str, dict[bool, list[int]]] = defaultdict(lambda: {True: [], False: []})
        self._verified: defaultdict[str, list[tuple[bool, bool]]] = defaultdict(list)
        self._agreed: defaultdict[str, list[bool]] = defaultdict(list)  # of each turn with several votes, whether all are the same
        self._ranked: defaultdict[str, Counter[bool]] = defaultdict(
            Counter
        )  # of pairs of a group, whether the longer one is higher
        self._group: tuple[str, list[tuple[str, float, int]]] = ("", [])  # the group under way: scorer, value, characters
        self._rewards: list[float] = []
        self._turns = self._flattering = 0

    def add(self, trajectory: Mapping[str, Any], scores: Sequence[JsonObject]) -> None:
        """Count the scores of a trajectory: rows of `scores` before they are stored."""
        judged = [row for row in scores if row["origin"] == "judge"]
        if not judged:
            return
        replies = {turn.turn: turn.reply.content for turn in exchanges_of(trajectory)}
        self._turns += len(replies)
        self._flattering += sum(_FLATTERY.search(reply) is not None for reply in replies.values())
        verified = next((row["success"] for row in scores if row["origin"] == "verifier" and row["turn"] is None), None)
        for row in judged:
            self._count(row, replies, verified)
        if trajectory.get("group_id") is not None:
            self._add_ranked(trajectory["group_id"], judged, sum(map(len, replies.values())))

    def add_reward(self, rows: Sequence[JsonObject]) -> None:
        """Count the reward of a rollout: the value of the verifier in its rows of `scores`, with those that are weighed in."""
        self._rewards += [row["value"] for row in rows if row["turn"] is None and row["origin"] == "verifier"]

    def details(self) -> JsonObject:
        """Return the mean reward of rollouts, where there are any, and the warnings, where there are any."""
        rewards = self._rewards
        mean = {"n": len(rewards), "mean": fmean(rewards), "variance": pvariance(rewards)} if rewards else None
        found = {"reward": mean, "warnings": self.warnings()}
        return {name: value for name, value in found.items() if value}

    def warnings(self) -> list[str]:
        """Return a sentence for each sign, in a fixed order."""
        return [
            *self._constant(),
            *self._unanimous(),
            *self._against_verifiers(),
            *self._long(),
            *self._ranked_long(),
            *self._flatterers(),
        ]

    def _count(self, row: JsonObject, replies: Mapping[int, str], verified: bool | None) -> None:
        if row["turn"] is None:
            if verified is not None and row["value"]:
                self._verified[row["scorer"]].append((row["value"] > 0, verified))
            return
        self._values[row["scorer"]][row["value"]] += 1
        votes = [vote["value"] for vote in json.loads(row["evidence"]).get("votes", ()) if vote["value"] is not None]
        if len(votes) > 1:
            self._agreed[row["scorer"]].append(len(set(votes)) == 1)
        if row["value"] and row["turn"] in replies:
            self._lengths[row["scorer"]][row["value"] > 0].append(len(replies[row["turn"]]))

    def _constant(self) -> Iterator[str]:
        for name, values in sorted(self._values.items()):
            (value, count), total = values.most_common(1)[0], values.total()
            if total >= _FEWEST and count >= _CONSTANT * total:
                yield f"{name} says {value:+g} of {count} of {total} turns: a judge that always says the same may read nothing"

    def _unanimous(self) -> Iterator[str]:
        for name, turns in sorted(self._agreed.items()):
            if len(turns) >= _FEWEST and all(turns):
                yield f"the votes of {name} agree on all of {len(turns)} turns: votes that always agree may read nothing"

    def _against_verifiers(self) -> Iterator[str]:
        for name, pairs in sorted(self._verified.items()):
            good = [verified for says, verified in pairs if says]
            bad = [verified for says, verified in pairs if not says]
            if len(pairs) >= _FEWEST and good and bad and fmean(good) <= fmean(bad):
                shares = f"{fmean(good):.2f} of what it praises succeeded, and {fmean(bad):.2f} of what it blames"
                yield f"{name} speaks against the verifier: {shares}"

    def _long(self) -> Iterator[str]:
        for name, lengths in sorted(self._lengths.items()):
            praised, blamed = lengths[True], lengths[False]
            if min(len(praised), len(blamed)) >= _FEWEST and fmean(praised) >= _LONGER * max(fmean(blamed), 1.0):
                yield f"{name} praises length: {fmean(praised):.0f} characters on average, and {fmean(blamed):.0f} where it blames"

    def _add_ranked(self, group: str, judged: Sequence[JsonObject], length: int) -> None:
        """Compare a rollout's scores with those of the rollouts of its group before it."""
        if group != self._group[0]:
            self._group = (group, [])
        for row in (one for one in judged if one["turn"] is None):
            for scorer, value, other in self._group[1]:
                if scorer == row["scorer"] and value != row["value"] and other != length:
                    self._ranked[scorer][(row["value"] > value) == (length > other)] += 1
        self._group[1].extend((row["scorer"], row["value"], length) for row in judged if row["turn"] is None)

    def _ranked_long(self) -> Iterator[str]:
        for name, pairs in sorted(self._ranked.items()):
            if pairs.total() >= _FEWEST and pairs[True] >= _LONGER_WINS * pairs.total():
                share = f"{pairs[True]} of {pairs.total()} pairs of rollouts of one item"
                yield f"{name} prefers length: in {share} the longer one has the higher score"

    def _flatterers(self) -> Iterator[str]:
        if self._turns >= _FEWEST and self._flattering >= _FLATTERING * self._turns:
            yield f"{self._flattering} of {self._turns} turns speak to a judge: look for what the policy has learnt to say"
