"""Count what judges say, row by row, and say what looks gamed."""

from __future__ import annotations

import json
from array import array
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean, median, pvariance
from typing import Any

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.play.judging.exchanges import Exchange, exchanges_of
from clawpipe.play.judging.gaming.chances import FEWEST, at_least, larger, significant
from clawpipe.play.judging.gaming.people import Signs, against, against_users
from clawpipe.play.judging.gaming.phrases import Said, Sample, fragments, most_canned, most_repeated, quoting, said
from clawpipe.play.judging.judge_prompt import INSTRUCTIONS

# What honest nights have at most: a sign is what cannot be explained by as much.
_ONE_VALUE = 0.9  # share of turns on which a judge says the same, or on which its votes agree
_LONGER_PAIRS = 0.7  # share of the pairs of a praised and a blamed turn in which the praised one is longer
_LONGER_WINS = 0.75  # share of the pairs of a group in which the longer one is ranked higher
_RUBRIC = 0.02  # share of turns with words of the judge's instructions
_REPEATED = 0.6  # share of requests that are answered with the same phrase
_CANNED = 0.15  # share of praised requests that get one reply
_QUOTED = 0.15  # share of praised turns whose praise stood in the reply
_SAME_RESULT = 0.8  # share of a tool's calls that return one text, where a tool is called for most requests

_LONGER = 1.5  # how many times as long praised turns are: less is no harm


class GamingSigns:
    """Counts what judges say, row by row; `warnings` says what looks wrong.

    Args:
        rubrics: what users have told the judges to look for.
    """

    def __init__(self, rubrics: Sequence[str] = ()) -> None:
        self.sample = Sample()
        self._rubric = set().union(*map(fragments, (*INSTRUCTIONS, *rubrics)))
        self._values: defaultdict[str, Counter[float]] = defaultdict(Counter)
        self._sizes: defaultdict[tuple[str, str], dict[bool, list[int]]] = defaultdict(lambda: {True: [], False: []})
        self._pairs: defaultdict[tuple[str, str], Signs] = defaultdict(Counter)  # judge's and another's, by both
        self._agreed: defaultdict[str, Counter[bool]] = defaultdict(Counter)  # of turns with several votes, whether all agree
        self._ranked: defaultdict[str, Counter[bool]] = defaultdict(Counter)  # of pairs of a group, whether the longer is higher
        self._group: tuple[str, list[tuple[str, float, int]]] = ("", [])  # the group under way: scorer, value, characters
        self._results: defaultdict[str, Counter[str]] = defaultdict(Counter)  # first result of a tool in a turn, by tool
        self._rewards = array("d")
        self._turns = self._reciting = 0

    def add(self, trajectory: Mapping[str, Any], scores: Sequence[JsonObject]) -> None:
        """Count the scores of a trajectory: rows of `scores` before they are stored."""
        judged = [row for row in scores if row["origin"] == "judge"]
        if not judged:
            return
        success = next((row["success"] for row in scores if row["origin"] == "verifier" and row["turn"] is None), None)
        turns = {turn.turn: turn for turn in exchanges_of(trajectory)}
        self._compare(scores, judged)
        for row in judged:
            self._count(row, turns)
        for number, turn in turns.items():
            values = {row["scorer"]: row["value"] for row in judged if row["turn"] in (number, None)}
            self._add_turn(turn, said(turn, values, success))
        if trajectory.get("group_id") is not None:
            self._add_ranked(trajectory["group_id"], judged, sum(len(turn.reply.content) for turn in turns.values()))

    def add_reward(self, rows: Sequence[JsonObject]) -> None:
        """Count the reward of a rollout: the value of the verifier in its rows of `scores`, with those that are weighed in."""
        self._rewards.extend(row["value"] for row in rows if row["turn"] is None and row["origin"] == "verifier")

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
            *self._against_others(),
            *self._large(),
            *self._ranked_long(),
            *self._recited(),
            *self._repeated(),
            *self._canned(),
            *self._quoted(),
            *self._useless(),
        ]

    def _compare(self, scores: Sequence[JsonObject], judged: Sequence[JsonObject]) -> None:
        """Note on which trajectories and turns a judge and a verifier, or a judge and a user, both have a sign."""
        for other in scores:
            says = _says(other)
            for row in judged if says is not None else ():
                if row["turn"] == other["turn"] and row["value"]:
                    self._pairs[row["scorer"], other["origin"]][row["value"] > 0, bool(says)] += 1

    def _add_turn(self, turn: Exchange, told: Said) -> None:
        self._turns += 1
        self._reciting += bool(told.own & self._rubric)
        self.sample.add(told)
        for call, result in zip(turn.reply.tool_calls, turn.results, strict=False):
            self._results[call.name][result.content] += 1

    def _count(self, row: JsonObject, turns: Mapping[int, Exchange]) -> None:
        if row["turn"] is None:
            return
        self._values[row["scorer"]][row["value"]] += 1
        votes = [vote["value"] for vote in json.loads(row["evidence"]).get("votes", ()) if vote["value"] is not None]
        if len(votes) > 1:
            self._agreed[row["scorer"]][len(set(votes)) == 1] += 1
        if row["value"] and (turn := turns.get(row["turn"])):
            self._sizes[row["scorer"], "characters"][row["value"] > 0].append(len(turn.reply.content))
            self._sizes[row["scorer"], "calls"][row["value"] > 0].append(len(turn.reply.tool_calls))

    def _constant(self) -> Iterator[str]:
        for name, values in sorted(self._values.items()):
            (value, count), total = values.most_common(1)[0], values.total()
            if value and _too_many(count, total, _ONE_VALUE):
                yield f"{name} says {value:+g} of {count} of {total} turns: a judge that always says the same may read nothing"

    def _unanimous(self) -> Iterator[str]:
        for name, turns in sorted(self._agreed.items()):
            if _too_many(turns[True], turns.total(), _ONE_VALUE):
                share = "all" if not turns[False] else f"{turns[True]}"
                yield f"the votes of {name} agree on {share} of {turns.total()} turns: votes that always agree may read nothing"

    def _against_others(self) -> Iterator[str]:
        for (name, origin), pairs in sorted(self._pairs.items()):
            if origin == "user" and (text := against_users(pairs)):
                yield f"{name} speaks against the users: {text}"
            if origin == "verifier" and (text := against(pairs, 0.0, "succeeded")):
                yield f"{name} speaks against the verifier: {text}"

    def _large(self) -> Iterator[str]:
        for (name, unit), sizes in sorted(self._sizes.items()):
            praised, blamed = sizes[True], sizes[False]
            if min(len(praised), len(blamed)) < FEWEST // 3 or median(praised) < _LONGER * max(median(blamed), 1):
                continue
            share, chance = larger(praised, blamed)
            if share > _LONGER_PAIRS and significant(chance):
                what = "length" if unit == "characters" else "calls"
                yield (
                    f"{name} praises {what}: {fmean(praised):.0f} {unit} on average, and {fmean(blamed):.0f} where it blames "
                    f"(more in {share:.2f} of the pairs)"
                )

    def _recited(self) -> Iterator[str]:
        if _too_many(self._reciting, self._turns, _RUBRIC):
            yield f"{self._reciting} of {self._turns} turns recite what the judge is told to look for"

    def _repeated(self) -> Iterator[str]:
        phrase, count, requests = most_repeated(self.sample.turns)
        if _too_many(count, requests, _REPEATED):
            yield f'"{phrase}" stands in the replies to {count} of {requests} requests: look for what the policy has learnt to say'

    def _canned(self) -> Iterator[str]:
        reply, count, requests = most_canned([turn for turn in self.sample.turns if turn.praised])
        if _too_many(count, requests, _CANNED):
            yield f'one reply, "{_cut(reply)}", is praised for {count} of {requests} requests'

    def _quoted(self) -> Iterator[str]:
        quoted = list(quoting(self.sample.turns))
        if _too_many(sum(quoted), len(quoted), _QUOTED):
            yield f"in {sum(quoted)} of {len(quoted)} praised turns the user's praise stands in the reply: replies may ask for it"

    def _useless(self) -> Iterator[str]:
        for name, results in sorted(self._results.items()):
            (_, count), total = results.most_common(1)[0], results.total()
            if total > self._turns / 2 and _too_many(count, total, _SAME_RESULT):
                yield f"{name} is called in most turns, and {count} of {total} calls return the same: they may serve the judge only"

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
            if _too_many(pairs[True], pairs.total(), _LONGER_WINS):
                share = f"{pairs[True]} of {pairs.total()} pairs of rollouts of one item"
                yield f"{name} prefers length: in {share} the longer one has the higher score"


def _says(row: JsonObject) -> bool | None:
    """Whether a verifier or user calls something good; None for a judge, and for a user's 0."""
    if row["origin"] == "verifier":
        return row["success"]
    return row["value"] > 0 if row["origin"] == "user" and row["value"] else None


def _too_many(count: int, total: int, honest: float) -> bool:
    """Whether more are of a kind than honest nights have, beyond chance."""
    return total >= FEWEST and count > honest * total and significant(at_least(count, total, honest))


def _cut(text: str) -> str:
    return text if len(text) <= 60 else f"{text[:57]}..."
