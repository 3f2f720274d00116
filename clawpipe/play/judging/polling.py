"""Poll judges: collect their votes on questions, each asked once and kept, within a budget."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from anyio.from_thread import start_blocking_portal

from clawpipe.core.config.engine import KEYS
from clawpipe.core.store.digests import sha256_json
from clawpipe.core.system import faults
from clawpipe.errors import BusyError
from clawpipe.model.engines.servers import RefusedRequestError
from clawpipe.play.judging.endpoint import Endpoint, ask_each, spent_error
from clawpipe.play.judging.judge_answer import Reads
from clawpipe.play.judging.judge_prompt import PROMPT_VERSION, JudgePrompt
from clawpipe.play.judging.panel import Member, PanelOptions
from clawpipe.play.judging.said import Said
from clawpipe.play.judging.spending import Ledger, Tokens
from clawpipe.play.judging.votes import Vote, VoteStore

if TYPE_CHECKING:
    from clawpipe.model.engines.local import LocalModel

_FEWEST = 50  # questions, before the share of those that failed ends a night
_QUOTED = 60  # characters of an answer in a message
_AWAY = "start it: what was answered is kept, and is not asked again"
_UNREAD = (
    "raise max_tokens, name the URL up to /v1, or choose a judge that follows the layout: what cannot be read is kept, too "
    "(`clawpipe judge report`)"
)
_NOTHING_SAID = "look at the endpoint, or name its URL up to /v1: such answers are asked for again"
_SEEDS = 2**31  # endpoints refuse larger ones


class Ballot(NamedTuple):
    """One vote to ask for."""

    key: str
    member: Member
    number: int
    prompt: JudgePrompt
    about: str  # ids of the trajectories, a line each

    @property
    def seed(self) -> int:
        return int(self.key[:8], 16) % _SEEDS


@dataclass
class Poll:
    """The votes of a panel of judges. `what` is what its questions are about, in the plural, for messages."""

    name: str
    options: PanelOptions
    verdicts: VoteStore
    reads: Reads
    what: str = "turns"
    ledger: Ledger = field(init=False)
    _votes: dict[str, Vote] = field(default_factory=dict[str, Vote])
    _models: dict[Member, LocalModel] = field(default_factory=dict[Member, "LocalModel"])
    _questions: int = 0
    _failed: Counter[int] = field(default_factory=Counter[int])  # questions without a valid vote, by place in the panel
    _away: dict[int, str] = field(default_factory=dict[int, str])  # why a judge did not answer
    _refused: RefusedRequestError | None = None  # a question that one will not answer

    def __post_init__(self) -> None:
        self.ledger = Ledger.beside(self.verdicts.path)

    def collect(self, asked: Sequence[tuple[JudgePrompt, str]]) -> None:
        """Collect the votes on questions, each with the ids of its trajectories, that are not known yet.

        Raises:
            BusyError: too many of 50 questions or more have no valid vote of a judge, or none has; a judge is away; or the budget
                does not suffice.
            ConfigError: a judge refuses to answer.
        """
        ballots = {one.key: one for prompt, about in asked for one in self._ballots(prompt, about)}
        self._votes |= self.verdicts.known(ballots)
        self._ask([one for key, one in ballots.items() if key not in self._votes])
        self._questions += len(asked)
        for place in range(len(self.options.judges)):
            self._failed[place] += sum(not self._is_valid(prompt, place) for prompt, _ in asked)
        if self._questions >= _FEWEST or max(self._failed.values()) == self._questions:  # what a judge is like shows soon
            self.conclude()

    def conclude(self) -> None:
        """Look at the votes on all questions so far.

        Raises:
            BusyError: too many questions have no valid vote of some judge.
            ConfigError: not one has, and the judge refuses the questions.
        """
        place, failed = self._failed.most_common(1)[0] if self._failed else (0, 0)
        if self._refused and failed == self._questions:
            raise self._refused
        if failed > self.options.failed_share * self._questions:
            member, unread = self.options.judges[place], self._unread(place)
            of = f" of {member.title}" if len(self.options.judges) > 1 else ""
            why = "".join(f"; {one}" for one in (self._away.get(place), unread) if one)
            what = f"{failed} of {self._questions} {self.what} have not one valid verdict{of}{why}"
            fix = _NOTHING_SAID if all(vote.passing for vote in self._not_read(place)) else _UNREAD
            raise BusyError(what, self.name, fix if unread else _AWAY)

    def cast(self, asked: JudgePrompt) -> list[tuple[Vote, float]]:
        """Return the votes on a question with their weights; a judge that did not answer has cast none."""
        return [vote for _, vote in self.cast_by_place(asked)]

    def cast_by_place(self, asked: JudgePrompt) -> Iterator[tuple[int, tuple[Vote, float]]]:
        """Yield the votes on a question with their weights, and the place of the judge in the panel."""
        for place in range(len(self.options.judges)):
            for one in self._ballots_of(place, asked):
                if one.key in self._votes:
                    yield place, (self._votes[one.key], one.member.weight)

    def abstained(self, asked: JudgePrompt) -> list[str]:
        """Return the judges that have no valid vote on a question."""
        judges = self.options.judges
        return [member.title for place, member in enumerate(judges) if not self._is_valid(asked, place)]

    def _is_valid(self, asked: JudgePrompt, place: int) -> bool:
        known = (self._votes.get(one.key) for one in self._ballots_of(place, asked))
        return any(vote is not None and vote.value is not None for vote in known)

    def _unread(self, place: int) -> str:
        """Return a sentence about the answers of a judge that could not be parsed as verdicts; "" if all could."""
        unread = self._not_read(place)
        cut = sum(vote.reply_tokens >= self.options.max_tokens for vote in unread)
        if not unread:
            return ""
        text = " ".join(unread[0].raw.split())[:_QUOTED]
        return f"{len(unread)} answers cannot be read ({cut} end at max_tokens), such as {text!r}"

    def _not_read(self, place: int) -> list[Vote]:
        model = self.options.judges[place].model
        return [vote for _, vote in sorted(self._votes.items()) if vote.value is None and vote.model == model]

    def _ballots(self, asked: JudgePrompt, about: str = "") -> Iterator[Ballot]:
        for place in range(len(self.options.judges)):
            yield from self._ballots_of(place, asked, about)

    def _ballots_of(self, place: int, asked: JudgePrompt, about: str = "") -> Iterator[Ballot]:
        sampling, judges = [self.options.temperature, self.options.max_tokens], self.options.judges
        member = judges[place]
        namesakes = sum(other.model == member.model for other in judges[:place])  # elsewhere: their votes are not the same
        for number in range(self.options.votes):
            key = sha256_json([self._identities[place], namesakes, sampling, asked.subject, asked.code, asked.rubric, number])
            yield Ballot(key, member, number, asked, about)

    @cached_property
    def _identities(self) -> list[str]:
        return [member.identity for member in self.options.judges]

    def _ask(self, ballots: Sequence[Ballot]) -> None:
        for place, member in enumerate(self.options.judges):
            own = [one for one in ballots if one.member == member and one.key not in self._votes]
            if own and member.url:
                with start_blocking_portal() as portal:  # a loop of its own, whatever runs in this thread
                    portal.call(self._ask_endpoint, place, member, own)
            elif own:
                self._ask_here(member, own)

    async def _ask_endpoint(self, place: int, member: Member, ballots: Sequence[Ballot]) -> None:
        options, key = self.options, os.environ.get(KEYS["openai"], "")
        limits = (options.temperature, options.max_tokens, options.timeout, options.concurrency)
        async with Endpoint(
            member.url.rstrip("/"), member.model, member.title, *limits, self.ledger, options.limits, key
        ) as endpoint:
            await ask_each(ballots, lambda one: self._vote(endpoint, place, one), options.concurrency)

    async def _vote(self, endpoint: Endpoint, place: int, one: Ballot) -> None:
        """Ask for a vote; a judge that does not answer this question casts none."""
        began = time.monotonic()
        try:
            said = await endpoint.ask(one.prompt.messages, one.seed, one.prompt.form)
        except RefusedRequestError as error:
            self._away[place], self._refused = f"{error.where}: {error.what}", error
        except BusyError as error:
            if error.where != endpoint.url or endpoint.is_dead:
                raise
            self._away[place] = f"{error.where}: {error.what}"
        else:
            self._keep(one, said, time.monotonic() - began)

    def _ask_here(self, member: Member, ballots: Sequence[Ballot]) -> None:
        """Ask a model in this process, question by question. All votes on one are sampled together, those that are known too:
        beside others in its batch, a vote could be another one by rounding."""
        from clawpipe.model.engines.local import LocalModel  # torch, which who asks an endpoint need not wait for

        options = self.options
        if member not in self._models:
            self._models[member] = LocalModel.at(member.model, options.temperature, options.max_tokens)
        missing = {one.key for one in ballots}
        for asked in {one.prompt: one for one in ballots}.values():
            votes = [one for one in self._ballots(asked.prompt, asked.about) if one.member == member]
            held = self._hold_here(member, asked.prompt, len(votes))
            began = time.monotonic()
            replies = self._models[member].ask(asked.prompt.messages, [one.seed for one in votes])
            seconds = time.monotonic() - began
            costs = [Tokens(reply.prompt_tokens, reply.reply_tokens) for reply in replies]
            cost = Tokens(sum(one.prompt for one in costs), sum(one.reply for one in costs))
            self.ledger.settle(member.title, held, cost, options.limits, seconds)
            for one, reply, tokens in zip(votes, replies, costs, strict=True):
                if one.key in missing:
                    self._keep(one, Said(reply.message.content, reply.finish_reason, tokens), seconds / len(votes))

    def _hold_here(self, member: Member, prompt: JudgePrompt, votes: int) -> Tokens:
        size = sum(len(message.content.encode(errors="replace")) for message in prompt.messages)
        most = Tokens(votes * size, votes * self.options.max_tokens)
        if not self.ledger.hold(member.title, most, self.options.limits):
            raise spent_error(self.ledger, member.title, most, self.options.limits)
        return most

    def _keep(self, one: Ballot, said: Said, seconds: float) -> None:
        read = self.reads(said.text, one.prompt)
        about = (one.member.model, PROMPT_VERSION, one.number, one.prompt.subject, one.about)
        passing = said.passing and read.value is None
        vote = Vote(one.key, *about, said.text, read.value, read.hints, *said.tokens, seconds, passing)
        faults.kill_point("judging.before_vote")
        self.verdicts.add(vote)
        self._votes[vote.key] = vote
