"""`prm`, a process reward model: a language model votes on each turn by the messages that follow it, and writes hints."""

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from pydantic import ValidationError

from clawpipe import faults
from clawpipe.config.engine import KEYS
from clawpipe.config.load import explained
from clawpipe.engines.chat import ChatModel, Reply
from clawpipe.engines.servers import RefusedRequestError, Servers
from clawpipe.errors import BusyError, ConfigError
from clawpipe.json_types import Row
from clawpipe.judging.base import Origin, Score, with_mean
from clawpipe.judging.compare import Question
from clawpipe.judging.exchanges import Exchange, exchanges_of
from clawpipe.judging.judge_prompt import PROMPT_VERSION, JudgePrompt, comparison_prompt, read_answer, turn_prompt, usable_hints
from clawpipe.judging.panel import Member, PrmOptions
from clawpipe.judging.turn_faults import signs_of_fault
from clawpipe.judging.votes import Vote, VoteStore, spent
from clawpipe.privacy.redact import redact_texts
from clawpipe.store.digests import sha256_json
from clawpipe.store.home import Home

if TYPE_CHECKING:
    from clawpipe.engines.local import LocalModel

_FEWEST = 50  # turns, before the share of those that failed ends a night
_QUOTED = 60  # characters of an answer in a message
_AWAY = "start it: what was answered is kept, and is not asked again"
_UNREAD = "raise max_tokens, or choose a judge that follows the layout: what cannot be read is kept, too (`clawpipe judge report`)"
_SEEDS = 2**31  # endpoints refuse larger ones


class VoteResult(NamedTuple):
    """What the votes on a turn come to: `value` None abstains; `share` of the valid votes, by weight, that say so."""

    value: int | None
    share: float


def plurality(values: Sequence[tuple[int | None, float]], consensus: float) -> VoteResult:
    """Return the verdict of votes, each with its weight. None is no vote; ties, and no valid vote at all, come to 0."""
    sums: defaultdict[int, float] = defaultdict(float)
    for value, weight in values:
        if value is not None:
            sums[value] += weight
    if not sums:
        return VoteResult(0, 0.0)
    most, total = max(sums.values()), sum(sums.values())
    winners = [value for value, weight in sums.items() if weight == most]
    share = most / total
    if len(winners) > 1:
        return VoteResult(0, share)
    return VoteResult(winners[0] if share >= consensus else None, share)


class _Question(NamedTuple):
    """One vote to ask for."""

    key: str
    member: Member
    number: int
    prompt: JudgePrompt
    trajectory: str

    @property
    def seed(self) -> int:
        return int(self.key[:8], 16) % _SEEDS


@dataclass
class Prm:
    """Scores each main turn with 1, 0 or -1 from what came next, and the trajectory with the mean of its turns.

    Calls that fail or are repeated, and claims of actions without a call, are shown to the voters
    (clawpipe.judging.turn_faults), and are part of the evidence. A turn that nothing followed has no score.

    Raises:
        ConfigError: an option is wrong.
    """

    options: PrmOptions
    verdicts: VoteStore
    name: str = "prm"
    origin: Origin = "judge"
    _votes: dict[str, Vote] = field(default_factory=dict[str, Vote])
    _asked: list[Vote] = field(default_factory=list[Vote])
    _models: dict[Member, LocalModel] = field(default_factory=dict[Member, "LocalModel"])
    _turns: int = 0
    _failed: int = 0
    _away: str = ""  # why a judge did not answer
    _refused: RefusedRequestError | None = None  # a question that it will not answer

    def prepare(self, trajectories: Sequence[Row]) -> None:
        """Collect the votes on all turns of these trajectories.

        Raises:
            BusyError: too many of 50 turns or more have no valid vote, or none has; or the budget is spent.
            ConfigError: a judge refuses to answer.
        """
        turns = [(turn, row) for row in trajectories for turn in exchanges_of(row) if _is_open(turn)]
        self._collect([(turn_prompt(turn, _noticed(turn, row)), row["trajectory_id"]) for turn, row in turns])

    def compare(self, questions: Sequence[Question]) -> list[int]:
        """Return for each question 1 where the votes say that the first answer is better, -1 where the second is, and else 0.

        Raises:
            BusyError, ConfigError: see `prepare` and `conclude`.
        """
        asked = [(comparison_prompt(one.before, one.first, one.second), one.trajectory) for one in questions]
        self._collect(asked)
        self.conclude()
        verdicts = (
            plurality([(vote.value, weight) for vote, weight in self._cast(one)], self.options.consensus) for one, _ in asked
        )
        return [verdict.value or 0 for verdict in verdicts]

    def _collect(self, asked: Sequence[tuple[JudgePrompt, str]]) -> None:
        """Collect the votes on these, each with its trajectory's id, that are not known yet; raises what `prepare` raises."""
        prompts = [one for one, _ in asked]
        questions = {one.key: one for prompt, whose in asked for one in self._questions(prompt, whose)}
        self._votes |= self.verdicts.known(questions)
        self._ask([one for key, one in questions.items() if key not in self._votes])
        failed = [one for one in prompts if not any(vote.value is not None for vote, _ in self._cast(one))]
        self._turns, self._failed = self._turns + len(prompts), self._failed + len(failed)
        if self._turns >= _FEWEST or self._failed == self._turns:  # what a judge is like shows soon, and asking on may cost much
            self.conclude()

    def conclude(self) -> None:
        """Look at the votes on all turns so far.

        Raises:
            BusyError: too many turns have no valid vote.
            ConfigError: not one has, and the judge refuses the questions.
        """
        if self._refused and self._failed == self._turns:
            raise self._refused
        if self._failed > self.options.failed_share * self._turns:
            why = "".join(f"; {one}" for one in (self._away, self._unread()) if one)
            what = f"{self._failed} of {self._turns} turns have not one valid verdict{why}"
            raise BusyError(what, self.name, _UNREAD if self._unread() else _AWAY)

    def _unread(self) -> str:
        """Return a sentence about the answers that could not be parsed as verdicts; "" if all could."""
        unread = [vote for _, vote in sorted(self._votes.items()) if vote.value is None]
        cut = sum(vote.reply_tokens >= self.options.max_tokens for vote in unread)
        if not unread:
            return ""
        text = " ".join(unread[0].raw.split())[:_QUOTED]
        return f"{len(unread)} answers cannot be read ({cut} end at max_tokens), such as {text!r}"

    def score(self, item: Row, trajectory: Row) -> Iterator[Score]:
        yield from with_mean(score for turn in exchanges_of(trajectory) if (score := self._score(turn, trajectory)))

    def _score(self, turn: Exchange, trajectory: Row) -> Score | None:
        if not _is_open(turn):
            return None
        noticed = _noticed(turn, trajectory)
        asked = turn_prompt(turn, noticed)
        cast = self._cast(asked)
        verdict = plurality([(vote.value, weight) for vote, weight in cast], self.options.consensus)
        if verdict.value is None:
            return None
        evidence = {
            "subject": asked.subject,
            "votes": [{"model": vote.model, "value": vote.value, "key": vote.key} for vote, _ in cast],
            "share": round(verdict.share, 6),
            "prompt_version": PROMPT_VERSION,
        } | ({"noticed": list(noticed)} if noticed else {})
        agreeing = [vote for vote, _ in cast if vote.value == verdict.value]
        return Score(float(verdict.value), None, "votes", evidence, turn.turn, hints=self._hints(agreeing))

    def _hints(self, votes: Iterable[Vote]) -> tuple[str, ...]:
        """Return the candidate hints that quote no secret. Hints of votes that were outvoted teach nobody."""
        given = usable_hints([hint for vote in votes for hint in vote.hints])[: self.options.candidates]
        return tuple(hint for hint, shown in zip(given, redact_texts(given).texts, strict=True) if hint == shown) if given else ()

    def _cast(self, asked: JudgePrompt) -> list[tuple[Vote, float]]:
        """Return the votes on a turn with their weights; a judge that did not answer has cast none."""
        return [(self._votes[one.key], one.member.weight) for one in self._questions(asked) if one.key in self._votes]

    def _questions(self, asked: JudgePrompt, trajectory: str = "") -> Iterator[_Question]:
        sampling = [self.options.temperature, self.options.max_tokens]
        judges = self.options.judges
        for place, member in enumerate(judges):
            namesakes = sum(other.model == member.model for other in judges[:place])  # elsewhere: their votes are not the same
            for number in range(self.options.votes):
                key = sha256_json([self._identities[place], namesakes, sampling, asked.subject, number])
                yield _Question(key, member, number, asked, trajectory)

    @cached_property
    def _identities(self) -> list[str]:
        return [member.identity for member in self.options.judges]

    def _ask(self, questions: Sequence[_Question]) -> None:
        for member in dict.fromkeys(self.options.judges):
            own = [one for one in questions if one.member == member]
            if own:
                (self._ask_endpoint if member.url else self._ask_here)(member, own)

    def _ask_endpoint(self, member: Member, questions: Sequence[_Question]) -> None:
        key = os.environ.get(KEYS["openai"], "")
        servers = Servers((member.url,), key, KEYS["openai"], self.options.timeout, concurrency=self.options.concurrency)
        with ChatModel(servers, member.model, self.options.temperature, self.options.max_tokens) as model:
            servers.map(lambda one: self._vote(model, one), questions)

    def _vote(self, model: ChatModel, one: _Question) -> None:
        """Ask for a vote; a judge that does not answer, or not this question, casts none."""
        self._require_budget()
        began = time.monotonic()
        try:
            reply = model.ask(one.prompt.messages, seed=one.seed)
        except (BusyError, RefusedRequestError) as error:
            self._away = f"{error.where}: {error.what}"
            self._refused = error if isinstance(error, RefusedRequestError) else self._refused
            return
        self._keep(one, reply, time.monotonic() - began)

    def _ask_here(self, member: Member, questions: Sequence[_Question]) -> None:
        """Ask a model in this process, turn by turn. All votes on a turn are sampled together, those that are known too: beside
        others in its batch, a vote could be another one by rounding."""
        from clawpipe.engines.local import LocalModel  # torch, which who asks an endpoint need not wait for

        options = self.options
        if member not in self._models:
            self._models[member] = LocalModel.at(member.model, options.temperature, options.max_tokens)
        missing = {one.key for one in questions}
        for asked in {one.prompt.subject: one for one in questions}.values():
            self._require_budget()
            began = time.monotonic()
            votes = [one for one in self._questions(asked.prompt, asked.trajectory) if one.member == member]
            replies = self._models[member].ask(asked.prompt.messages, [one.seed for one in votes])
            seconds = (time.monotonic() - began) / len(votes)
            for one, reply in zip(votes, replies, strict=True):
                if one.key in missing:
                    self._keep(one, reply, seconds)

    def _keep(self, one: _Question, reply: Reply, seconds: float) -> None:
        text = reply.message.content
        read = read_answer(text, one.prompt.code)
        tokens = (reply.prompt_tokens, reply.reply_tokens)
        about = (one.member.model, PROMPT_VERSION, one.number, one.prompt.subject, one.trajectory)
        vote = Vote(one.key, *about, text, read.value, read.hints, *tokens, seconds)
        faults.kill_point("judging.before_vote")
        self.verdicts.add(vote)
        self._asked.append(vote)
        self._votes[vote.key] = vote

    def _require_budget(self) -> None:
        used, options = spent(self._asked), self.options
        tokens = sum(used.values())
        money = (used["prompt_tokens"] * options.prompt_price + used["reply_tokens"] * options.reply_price) / 1e6
        over = options.budget_tokens is not None and tokens >= options.budget_tokens
        if over or (options.budget is not None and money >= options.budget):
            what = f"the judge's budget is spent: {tokens} tokens, {money:.2f} of money"
            raise BusyError(what, self.name, "raise budget_tokens or budget: what was answered is kept, and is not asked again")


def make_prm(**options: Any) -> Prm:
    """Return the scorer with these options.

    Raises:
        ConfigError: an option is wrong.
    """
    try:
        return Prm(PrmOptions.model_validate(options), VoteStore.of(Home.from_env()))
    except ValidationError as error:
        raise ConfigError(explained(error, PrmOptions), "scorers: prm", "see docs/judges.md") from None


def _noticed(turn: Exchange, trajectory: Row) -> tuple[str, ...]:
    """Return what the voters should look at in a turn."""
    return signs_of_fault(turn, offered=_offers_tools(trajectory))


def _is_open(turn: Exchange) -> bool:
    return turn.following is not None or bool(turn.results)


def _offers_tools(trajectory: Row) -> bool:
    return trajectory.get("tools") not in (None, "", "[]")
