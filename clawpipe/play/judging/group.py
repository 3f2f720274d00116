"""`group`: a judge that ranks all rollouts of an item in one call, as a reward that needs no verifier."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, NamedTuple

from clawpipe.core.basics.json_types import JsonObject, Row
from clawpipe.core.conversation.messages import Message
from clawpipe.core.store.home import Home
from clawpipe.play.judging.base import ROLLOUT, Origin, Score
from clawpipe.play.judging.calibration import as_rollouts, calibration_of, ordered_pairs, require_agreement
from clawpipe.play.judging.group_prompt import MOST_AT_ONCE, SHARED, Group, group_of, group_prompt
from clawpipe.play.judging.judge_answer import read_ranking
from clawpipe.play.judging.judge_prompt import PROMPT_VERSION, JudgePrompt
from clawpipe.play.judging.panel import GroupOptions
from clawpipe.play.judging.polling import Poll
from clawpipe.play.judging.ranks import Ranks, merged, parts_of, standings
from clawpipe.play.judging.votes import VoteStore

_DIGITS = 9  # of a score: it is a fraction


class _Asked(NamedTuple):
    """The questions about a group: for each ranking its parts, each with the members in the order in which it shows them."""

    group: Group
    rankings: list[list[tuple[JudgePrompt, list[int]]]]
    about: str


@dataclass
class GroupJudge:
    """Scores each rollout with the share of the others of its item that it is ranked above, between 0 and 1; ties count half.

    A rollout whose item has no other one has no score, and neither have those of a group without a valid ranking. Equal rollouts
    are shown once, and equal groups are ranked once.

    Raises:
        ConfigError: an option is wrong.
    """

    options: GroupOptions
    verdicts: VoteStore
    name: str = "group"
    origin: Origin = "judge"
    scores_stored: bool = False
    by_groups: bool = True
    is_calibrated: bool = False
    poll: Poll = field(init=False)
    _scores: dict[str, Score] = field(default_factory=dict[str, Score])

    def __post_init__(self) -> None:
        each_once = self.options.model_copy(update={"votes": 1})  # every ranking is a question of its own, in another order
        self.poll = Poll(self.name, each_once, self.verdicts, read_ranking, "groups")

    def prepare(self, trajectories: Sequence[Row]) -> None:
        """Rank the groups among these rollouts, once the judge is calibrated.

        Raises:
            BusyError: see `Poll.collect`.
            ConfigError: as well; or the judge does not agree with people.
        """
        self._calibrate()
        self._rank(trajectories)

    def _rank(self, trajectories: Sequence[Row]) -> None:
        groups: defaultdict[str, list[Row]] = defaultdict(list)
        for row in trajectories:
            if row["source"] == ROLLOUT and row["group_id"] is not None:
                groups[row["group_id"]].append(row)
        asked = [(rows, self._questions(rows)) for rows in groups.values() if len(rows) > 1]
        self.poll.collect([(prompt, one.about) for _, one in asked for parts in one.rankings for prompt, _ in parts])
        self._scores = {name: score for rows, one in asked for name, score in self._scored(rows, one)}

    def conclude(self) -> None:
        """Look at all rankings so far. Raises what `Poll.conclude` raises."""
        self.poll.conclude()

    def score(self, item: Row, trajectory: Row) -> Iterator[Score]:
        if score := self._scores.get(trajectory["trajectory_id"]):
            yield score

    def _calibrate(self) -> None:
        if self.is_calibrated or not self.options.calibration:
            return
        known = calibration_of(self.options.calibration)
        self._rank(as_rollouts(known))
        values = {name: score.value for name, score in self._scores.items()}
        pairs = list(ordered_pairs(known, lambda row: values.get(row["trajectory_id"])))
        require_agreement(self.name, pairs, len(known), self.options.floor, "pairs of conversations")
        self.is_calibrated = True

    def _questions(self, rows: Sequence[Row]) -> _Asked:
        group = group_of([[Message.from_dict(message) for message in row["messages"]] for row in rows], self.options.shown)
        parts = parts_of(group.sizes, self.options.shown, MOST_AT_ONCE, SHARED) if len(group.rollouts) > 1 else []
        rankings = [
            [group_prompt(group, part, number, self.options.rubric) for part in parts] for number in range(self.options.votes)
        ]
        return _Asked(group, rankings, "\n".join(row["trajectory_id"] for row in rows))

    def _scored(self, rows: Sequence[Row], one: _Asked) -> Iterator[tuple[str, Score]]:
        parts = len(one.rankings[0])
        valid = [found for parts in one.rankings for found in self._rankings(parts)] if parts else [([{0: 0}], 1.0)]
        if not valid:
            return
        shared = SHARED if parts > 1 else 0
        weighed = [(standings(merged(ranks, shared), one.group.counts), Fraction(repr(weight))) for ranks, weight in valid]
        total = sum(weight for _, weight in weighed)
        evidence: JsonObject = {"of": len(rows), "parts": parts, "rankings": len(valid), "prompt_version": PROMPT_VERSION}
        for row, member in zip(rows, one.group.members, strict=True):
            value = sum((places[member] * weight for places, weight in weighed), Fraction()) / total
            yield row["trajectory_id"], Score(round(float(value), _DIGITS), reason="rank in its group", evidence=evidence)

    def _rankings(self, parts: Sequence[tuple[JudgePrompt, list[int]]]) -> Iterator[tuple[list[Ranks], float]]:
        """Yield the ranks that each judge gave in all parts, and its weight; a judge without a valid vote on a part gave none."""
        cast = [dict(self._cast(*part)) for part in parts]
        for place, member in enumerate(self.options.judges):
            ranks = [found.get(place) for found in cast]
            if all(ranks):
                yield [one for one in ranks if one], member.weight

    def _cast(self, prompt: JudgePrompt, order: Sequence[int]) -> Iterator[tuple[int, Ranks]]:
        """Yield the valid votes on a question, by the judge's place in the panel."""
        for place, (vote, _) in self.poll.cast_by_place(prompt):
            ranks = read_ranking(vote.raw, prompt).ranks
            if ranks is not None:
                yield place, {order[prompt.names.index(name)]: rank for name, rank in ranks.items()}


def make_group(**options: Any) -> GroupJudge:
    """Return the scorer with these options.

    Raises:
        ConfigError: an option is wrong.
    """
    return GroupJudge(GroupOptions.read(options, "group"), VoteStore.of(Home.from_env()))
