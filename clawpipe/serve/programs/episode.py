"""One episode of a program, as the endpoint sees it: what it may still ask, how that is sampled, and what was sampled."""

from __future__ import annotations

import secrets
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.core.conversation.messages import Message
from clawpipe.core.store.plain_digests import sha256_plain
from clawpipe.data.capture.alarms import DERIVED
from clawpipe.data.capture.records import Answer, Turn
from clawpipe.data.wire.texts import texts_of
from clawpipe.model.engines.rows import Row
from clawpipe.model.engines.sampling import Token, TurnSampling
from clawpipe.play.environments.base import Reason, TaskItem
from clawpipe.play.workers.episodes import EpisodeLimits, derive_seed
from clawpipe.serve.gateway.attribution import Attribution
from clawpipe.serve.programs.histories import Histories
from clawpipe.serve.serving.choice import Choice, Ending
from clawpipe.serve.serving.conversation import call_body
from clawpipe.serve.serving.errors import STOPPING, ApiError
from clawpipe.serve.serving.policy import Prepared
from clawpipe.serve.serving.turn import Delta

OVER = "episode_over"
TOO_LONG = "context_length_exceeded"
_SHOWN = 300  # characters of why a request was refused


@dataclass(frozen=True)
class Sampled:
    """Who samples: names for the record."""

    model: str
    policy_version: str


class Episode:
    """One episode. Its methods may be called from any thread.

    Args:
        limits: of a turn and of the episode's turns.
        tokens: that the policy may sample in all.
        ends: tokens that end a turn.

    Attributes:
        histories: what was sampled, for prompts that continue it.
        stopped: what was answered, by its text with the stop string that ended it.
        key: the episode's own secret, by which the endpoint knows its program.
        turns: what was answered whole, in the order of its ends.
        asked: number of requests that were let in.
        refusal: why a request was refused last; "": none was.
        was_told_over: whether a request was refused because a limit or the context was full.
    """

    def __init__(self, item: TaskItem, index: int, seed: int, limits: EpisodeLimits, tokens: int, ends: Sequence[int]) -> None:
        self.item, self.index, self.seed = item, index, seed
        self.key = f"sk-{secrets.token_urlsafe(24)}"
        self.histories = Histories(ends)
        self.stopped: dict[str, str] = {}
        self.turns: list[Turn] = []
        self.asked, self.refusal, self.was_told_over = 0, "", False
        self._limits, self._tokens = limits, tokens
        self._sampled = 0
        self._repeats: Counter[str] = Counter()
        self._reached: Reason | None = None
        self._closed = False
        self._lock = threading.Lock()

    @property
    def reached(self) -> Reason | None:
        """The limit that a request exceeded, or that cut the last answer; None: none."""
        cut = bool(self.turns) and any(answer.finish_reason == "length" for answer in self.turns[-1].answers)
        return self._reached or ("length" if cut else None)

    @property
    def last_reply(self) -> str | None:
        """The text of the main turn that ended last; None: there is none."""
        main = [turn for turn in self.turns if turn.turn_type == "main"]
        return str(main[-1].answers[0].message.get("content") or "") if main else None

    def close(self) -> None:
        """Take no further request."""
        with self._lock:
            self._closed = True

    def begin(self, prepared: Prepared) -> tuple[str, Prepared]:
        """Let a request in; return its name in the episode, and how it is sampled. What the program says of sampling counts
        nothing, so that all episodes of a group are draws of one policy; its limit of tokens, its stops and its grammars count.

        The seed is made of the prompt, and of how often it was asked before: programs that ask alike are answered alike, in
        whatever order requests arrive that were sent at the same time.

        Raises:
            ApiError: 403, the episode has ended or reached a limit.
        """
        with self._lock:
            self._require_room()
            self.asked += 1
            digest = sha256_plain([prepared.prompts, prepared.stops, prepared.held is not None])[:16]
            number = self._repeats[digest]
            self._repeats[digest] += 1
        most = min(prepared.sampling.max_new_tokens, self._limits.max_new_tokens)
        sampling = TurnSampling(self._limits.temperature, most, prepared.sampling.stop_ids)
        seed = derive_seed(self.seed, digest, number)
        return f"{digest}-{number}", replace(prepared, client=self.key, seed=seed, sampling=sampling)

    def refused(self, error: ApiError) -> None:
        """Note that a request was refused; not one that came after the program's end, or was given up at it."""
        if self._closed or error.code == STOPPING:
            return
        self.was_told_over = self.was_told_over or error.code in (OVER, TOO_LONG)
        self.refusal = f"{error.status}: {' '.join(error.message.split())[:_SHOWN]}"
        if error.code == TOO_LONG:
            self._reached = self._reached or "length"

    def add(self, turn: Turn) -> None:
        """Record a turn that was answered whole."""
        with self._lock:
            self.turns.append(turn)
            self._sampled += sum(len(answer.token_ids or ()) for answer in turn.answers)

    def _require_room(self) -> None:
        if self._closed:
            raise _over("it has ended")
        if self.asked >= self._limits.max_turns:
            self._reached = "max_turns"
            raise _over(f"its {self._limits.max_turns} turns are used up")
        if self._sampled >= self._tokens:
            self._reached = "length"
            raise _over(f"its {self._tokens} tokens are used up")
        self._reached = None  # it goes on after a prompt that was too long


def _over(why: str) -> ApiError:
    return ApiError(403, f"this episode takes no more requests: {why}", code=OVER)


@dataclass
class Asked:
    """A request that is being answered. When its last answer has ended, it is recorded.

    Attributes:
        name: in its episode.
        chat: the request as a chat's.
        messages, tools: the same, as the policy is shown them.
    """

    name: str
    chat: JsonObject
    messages: list[Message]
    tools: str
    prepared: Prepared
    whose: Attribution
    by: Sampled
    episode: Episode
    answers: dict[int, Answer] = field(default_factory=dict[int, Answer])

    def watched(self, choices: Sequence[Choice]) -> list[WatchedChoice]:
        """Return the answers to be sampled; each tells when it has ended."""
        return [WatchedChoice(choice, partial(self._ended, index)) for index, choice in enumerate(choices)]

    def _ended(self, index: int, said: Message, answer: Answer, stop: str | None) -> None:
        """Record an answer; a program whose stop string ended it puts that string back when it goes on."""
        self.answers[index] = answer
        cut = answer.finish_reason == "length" or stop is not None
        whole = Message(said.role, said.content + (stop or ""), said.tool_calls)
        if stop:
            self.episode.stopped[whole.content.strip()] = said.content
        self.episode.histories.add(self.tools, [*self.messages, whole], self.prepared.prompts[0], answer.token_ids or (), cut)
        if len(self.answers) == self.prepared.count:
            self.episode.add(self._turn())

    def _turn(self) -> Turn:
        named = self.whose.session_from != DERIVED
        return Turn(
            id=self.name,
            time=0.0,
            key="",
            session=self.whose.session if named else "",
            session_from=self.whose.session_from,
            turn_type=self.whose.turn_type,
            turn_type_from=self.whose.turn_type_from,
            request=self._asked(),
            answers=[answer for _, answer in sorted(self.answers.items())],
            parent=self.whose.parent,
            model=self.by.model,
            prompt_token_ids=list(self.prepared.prompts[0]),
            logprobs_kind="tempered",
            temperature=self.prepared.sampling.temperature,
            policy_version=self.by.policy_version,
        )

    def _asked(self) -> JsonObject:
        """Return the request without the user; turns in its history that a stop string ended stand there as they were answered."""
        stopped = self.episode.stopped
        messages = [
            {**one, "content": stopped[text]} if (text := "".join(texts_of(one.get("content")) or ()).strip()) in stopped else one
            for one in self.chat["messages"]
        ]
        return {name: value for name, value in self.chat.items() if name != "user"} | {"messages": messages}


class WatchedChoice:
    """An answer whose tokens, log-probs and text are kept, see `clawpipe.serve.serving.choice.Choice`."""

    def __init__(self, choice: Choice, ended: Callable[[Message, Answer, str | None], None]) -> None:
        self._choice, self._ended = choice, ended
        self._logprobs: list[float] = []
        self._content = ""

    @property
    def row(self) -> Row:
        return self._choice.row

    def take(self, token: Token) -> list[Delta | Ending]:
        self._logprobs.append(token.logprob)
        parts = self._choice.take(token)
        for part in parts:
            if isinstance(part, Ending):
                self._ended(Message("assistant", self._content, part.calls), self._answer(part), part.stop)
            else:
                self._content += part.content
        return parts

    def _answer(self, ending: Ending) -> Answer:
        message: JsonObject = {"role": "assistant", "content": self._content}
        if ending.calls:
            message |= {"content": self._content or None, "tool_calls": [call_body(call) for call in ending.calls]}
        return Answer(message, ending.finish_reason, list(self.row.turn), self._logprobs)
