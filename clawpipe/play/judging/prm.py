"""`prm`, a process reward model: a language model votes on each turn by the messages that follow it, and writes hints."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, NamedTuple

from clawpipe.core.basics.json_types import Row
from clawpipe.core.store.home import Home
from clawpipe.data.privacy.redact import redact_texts
from clawpipe.play.judging.base import Origin, Score, with_mean
from clawpipe.play.judging.calibration import calibration_of, require_agreement
from clawpipe.play.judging.compare import Question
from clawpipe.play.judging.exchanges import Exchange, exchanges_of
from clawpipe.play.judging.judge_answer import read_verdict, usable_hints
from clawpipe.play.judging.judge_prompt import PROMPT_VERSION, JudgePrompt, comparison_prompt, turn_prompt
from clawpipe.play.judging.panel import PrmOptions
from clawpipe.play.judging.polling import Poll
from clawpipe.play.judging.turn_faults import signs_of_fault
from clawpipe.play.judging.votes import Vote, VoteStore


class VoteResult(NamedTuple):
    """What the votes on a turn come to: `value` None abstains; `share` of the valid votes, by weight, that say so."""

    value: int | None
    share: float


def plurality(values: Sequence[tuple[int | None, float]], consensus: float) -> VoteResult:
    """Return the verdict of votes, each with its weight. None is no vote; ties, and no valid vote at all, come to 0."""
    sums: defaultdict[int, Fraction] = defaultdict(Fraction)
    for value, weight in values:
        if value is not None:
            sums[value] += Fraction(repr(weight))  # as it is written: 0.1 + 0.2 is 0.3
    if not sums:
        return VoteResult(0, 0.0)
    most, total = max(sums.values()), sum(sums.values())
    winners = [value for value, weight in sums.items() if weight == most]
    share = float(most / total)
    if len(winners) > 1:
        return VoteResult(0, share)
    return VoteResult(winners[0] if share >= consensus else None, share)


@dataclass
class Prm:
    """Scores each main turn with 1, 0 or -1 from what came next, and the trajectory with the mean of its turns.

    Calls that fail or are repeated, and claims of actions without a call, are shown to the voters
    (clawpipe.play.judging.turn_faults), and are part of the evidence. A turn that nothing followed has no score.

    Raises:
        ConfigError: an option is wrong.
    """

    options: PrmOptions
    verdicts: VoteStore
    name: str = "prm"
    origin: Origin = "judge"
    is_calibrated: bool = False
    poll: Poll = field(init=False)

    def __post_init__(self) -> None:
        self.poll = Poll(self.name, self.options, self.verdicts, read_verdict)

    def prepare(self, trajectories: Sequence[Row]) -> None:
        """Collect the votes on all turns of these trajectories, once the judge is calibrated.

        Raises:
            BusyError: see `Poll.collect`.
            ConfigError: as well; or the judge does not agree with people.
        """
        self._calibrate()
        self._collect(trajectories)

    def _collect(self, trajectories: Sequence[Row]) -> None:
        turns = [(turn, row) for row in trajectories for turn in exchanges_of(row) if _is_open(turn)]
        self.poll.collect([(self._prompt(turn, row), row["trajectory_id"]) for turn, row in turns])

    def compare(self, questions: Sequence[Question]) -> list[int]:
        """Return for each question 1 where the votes say that the first answer is better, -1 where the second is, and else 0.

        Raises:
            BusyError, ConfigError: see `prepare` and `conclude`.
        """
        rubric = self.options.rubric
        asked = [(comparison_prompt(one.before, one.first, one.second, rubric), one.trajectory) for one in questions]
        self.poll.collect(asked)
        self.conclude()
        verdicts = (
            plurality([(vote.value, weight) for vote, weight in self.poll.cast(one)], self.options.consensus) for one, _ in asked
        )
        return [verdict.value or 0 for verdict in verdicts]

    def conclude(self) -> None:
        """Look at the votes on all turns so far. Raises what `Poll.conclude` raises."""
        self.poll.conclude()

    def score(self, item: Row, trajectory: Row) -> Iterator[Score]:
        yield from with_mean(score for turn in exchanges_of(trajectory) if (score := self._score(turn, trajectory)))

    def _calibrate(self) -> None:
        if self.is_calibrated or not self.options.calibration:
            return
        known = calibration_of(self.options.calibration)
        self._collect([one.row for one in known])
        said = [({score.turn: score.value for score in self.score({}, one.row)}.get(None), one.good) for one in known]
        pairs = [(value > 0, good) for value, good in said if value]
        require_agreement(self.name, pairs, len(known), self.options.floor, "conversations")
        self.is_calibrated = True

    def _prompt(self, turn: Exchange, trajectory: Row) -> JudgePrompt:
        return turn_prompt(turn, _noticed(turn, trajectory), self.options.rubric)

    def _score(self, turn: Exchange, trajectory: Row) -> Score | None:
        if not _is_open(turn):
            return None
        asked = self._prompt(turn, trajectory)
        cast = self.poll.cast(asked)
        verdict = plurality([(vote.value, weight) for vote, weight in cast], self.options.consensus)
        if verdict.value is None:
            return None
        evidence = {
            "subject": asked.subject,
            "votes": [{"model": vote.model, "value": vote.value, "key": vote.key} for vote, _ in cast],
            "share": round(verdict.share, 6),
            "prompt_version": PROMPT_VERSION,
        }
        noticed, abstained = _noticed(turn, trajectory), self.poll.abstained(asked)
        evidence |= {"noticed": list(noticed)} if noticed else {}
        evidence |= {"abstained": abstained} if abstained else {}
        return Score(float(verdict.value), None, "votes", evidence, turn.turn, hints=self._hints(cast, verdict.value))

    def _hints(self, cast: Iterable[tuple[Vote, float]], value: int) -> tuple[str, ...]:
        """Return the candidate hints of the votes that agree with the verdict; none quotes a secret."""
        given = usable_hints([hint for vote, _ in cast if vote.value == value for hint in vote.hints])[: self.options.candidates]
        return tuple(hint for hint, shown in zip(given, redact_texts(given).texts, strict=True) if hint == shown) if given else ()


def make_prm(**options: Any) -> Prm:
    """Return the scorer with these options.

    Raises:
        ConfigError: an option is wrong.
    """
    return Prm(PrmOptions.read(options, "prm"), VoteStore.of(Home.from_env()))


def _noticed(turn: Exchange, trajectory: Row) -> tuple[str, ...]:
    """Return what the voters should look at in a turn."""
    return signs_of_fault(turn, offered=_offers_tools(trajectory))


def _is_open(turn: Exchange) -> bool:
    return turn.following is not None or bool(turn.results)


def _offers_tools(trajectory: Row) -> bool:
    return trajectory.get("tools") not in (None, "", "[]")
