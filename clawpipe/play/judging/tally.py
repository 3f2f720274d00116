"""Count what judges say of a dataset: turns praised, blamed, abstained and unread, by judge, rule and model; and rankings."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.play.judging.exchanges import exchanges_of

_SAID = {1: "praised", 0: "neutral", -1: "blamed"}


class Tally:
    """Counts the scores of judges, trajectory by trajectory.

    Args:
        judges: names of the scorers that are judges.
        rankers: those of them that rank the rollouts of an item.
    """

    def __init__(self, judges: Sequence[str], rankers: Sequence[str]) -> None:
        self._judges, self._rankers = [name for name in judges if name not in rankers], list(rankers)
        self._counts: dict[str, Counter[str]] = {name: Counter() for name in judges}
        self._rules: defaultdict[str, Counter[str]] = defaultdict(Counter)
        self._models: defaultdict[str, defaultdict[str, Counter[str]]] = defaultdict(lambda: defaultdict(Counter))
        self._group: tuple[str | None, list[dict[str, float]]] = (None, [])

    def add(self, trajectory: Mapping[str, Any], scores: Sequence[JsonObject]) -> None:
        """Count the scores of a trajectory: rows of `scores` before a reward is made of them."""
        if self._judges:
            turns = len(exchanges_of(trajectory))
            for name in self._judges:
                own = [row for row in scores if row["scorer"] == name and row["turn"] is not None]
                self._counts[name].update(turns=turns, abstained=turns - len(own))
                for row in own:
                    self._count(name, row)
        if self._rankers and trajectory.get("group_id") is not None:
            self._compare(trajectory["group_id"], {row["scorer"]: row["value"] for row in scores if row["turn"] is None}, scores)

    def details(self) -> JsonObject:
        """Return the counts of each judge, where there are any."""
        found = {}
        for name, counts in self._counts.items():
            models = {model: dict(said) for model, said in sorted(self._models[name].items())}
            parts = {"rules": dict(sorted(self._rules[name].items())), "models": models}
            found[name] = dict(counts) | {part: value for part, value in parts.items() if value}
        return {"judges": found} if any(found.values()) else {}

    def _count(self, name: str, row: JsonObject) -> None:
        votes = json.loads(row["evidence"]).get("votes", ())
        for vote in votes:
            said = "unread" if vote["value"] is None else _SAID[vote["value"]]
            self._models[name][vote["model"]][said] += 1
        is_unread = row["reason"] == "votes" and all(vote["value"] is None for vote in votes)
        said = "unread" if is_unread else _SAID[(row["value"] > 0) - (row["value"] < 0)]
        self._counts[name][said] += 1
        if row["reason"] and row["reason"] != "votes":
            self._rules[name][row["reason"]] += 1

    def _compare(self, group: str, values: dict[str, float], scores: Sequence[JsonObject]) -> None:
        """Count in how many pairs of a group's rollouts a ranking and the verifier name the same one as the better."""
        if group != self._group[0]:
            self._group = (group, [])
        verifier = next((row["value"] for row in scores if row["origin"] == "verifier" and row["turn"] is None), None)
        for name in self._rankers:
            self._counts[name].update(rollouts=1, ranked=int(name in values))
            for other in self._group[1]:
                if name in values and name in other and verifier not in (None, other[""]) and values[name] != other[name]:
                    agrees = (values[name] > other[name]) == (verifier > other[""])
                    self._counts[name].update(pairs=1, agreeing_pairs=int(agrees))
        if verifier is not None:
            self._group[1].append(values | {"": verifier})
