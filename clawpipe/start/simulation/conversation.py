"""Hold one conversation of a simulated user: the question, the agent harness's tool loop, and the user's reaction."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from typing import Any

import httpx
from pydantic import BaseModel, ConfigDict, Field

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.core.config.block import renamed
from clawpipe.core.conversation.messages import Message
from clawpipe.data.wire.arguments import listed_calls
from clawpipe.play.environments.base import Environment, Outcome, TaskItem
from clawpipe.play.environments.ending import Ending, outcome_of
from clawpipe.play.environments.play import Play
from clawpipe.play.environments.split import stable_hash
from clawpipe.start.simulation.words import Arm, Mood, reaction

TEMPERATURE = 0.8
MOST_TOKENS = 24  # of a turn, as in the demo night
_LAST_TOKENS = 8  # of the reply to the user's last words, which nobody reads
_MOST_TURNS = 2  # of the agent: a call, and the answer
_SECONDS = 300.0


class Talk(BaseModel):
    """The outcome of a conversation.

    `success` and `value` are the environment's own verdict, which is in no request and which no night is given.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    hour: int = Field(description="number of nights before it began")
    session: str
    item: str
    version: str = Field(description="of the model that answered")
    success: bool
    value: float
    reason: str
    mood: Mood
    words: str = renamed("said", "words", description="the user's last ones")
    turns: int = Field(description="of the agent, the reply to the last words included")
    seconds: float


class FailedRequestError(Exception):
    """A request that was not answered."""


class Harness:
    """An agent harness: asks the model, runs the tools that it calls, and sends the results back.

    Args:
        url: of the gateway, to which /chat/completions is added.
        key: for it.
        model: name in requests.
        most_tokens: of a turn.
        arm: of an experiment, see `reaction`.
        others: successes of earlier answers, from which the arm with permuted words draws what is said of this one.
    """

    def __init__(
        self,
        environment: Environment,
        url: str,
        key: str,
        model: str,
        most_tokens: int = MOST_TOKENS,
        arm: Arm = "as is",
        others: Sequence[bool] = (),
    ) -> None:
        self._environment, self._model, self._most_tokens = environment, model, most_tokens
        self._arm: Arm = arm
        self._others = others
        self._client = httpx.Client(base_url=url, headers={"Authorization": f"Bearer {key}"}, timeout=_SECONDS, trust_env=False)
        self._tools = [tool.as_function() for tool in environment.tools()]
        self._preamble = [_sent(message) for message in environment.preamble()]

    def close(self) -> None:
        self._client.close()

    def talk(self, goal: TaskItem, hour: int, session: str, user: int, draw: random.Random) -> Talk:
        """Hold one conversation; `user` is the user's number.

        Raises:
            FailedRequestError: a request failed.
        """
        started = time.monotonic()
        name = f"user-{user}"
        messages, ending, version = self._answered(goal, session, name)
        outcome = outcome_of(self._environment, goal, messages, ending)
        mood, words = reaction(self._felt(outcome.success, draw), user, self._arm, draw)
        last = min(_LAST_TOKENS, self._most_tokens)
        self._ask([*messages, Message("user", words)], session, name, last, {"X-Session-Done": "1"})
        turns = 1 + sum(message.role == "assistant" for message in messages)
        return _talk(hour, session, goal, version, outcome, mood, words, turns, time.monotonic() - started)

    def _felt(self, success: bool, draw: random.Random) -> bool:
        """Return what the user's words are about: this answer, or where words are permuted, anybody's."""
        return draw.choice(self._others) if self._arm == "permuted" and self._others else success

    def _answered(self, goal: TaskItem, session: str, user: str) -> tuple[list[Message], Ending, str]:
        """Return the conversation until the answer, without the preamble, how it ended, and the version that gave it."""
        messages, version = list(goal.messages), ""
        play = Play(self._environment, goal, stable_hash(session))
        try:
            for _ in range(_MOST_TURNS):
                reply, version = self._ask(messages, session, user, self._most_tokens)
                messages.append(reply)
                answer = play.answer(messages)
                messages += answer.messages
                if answer.done:
                    play.end("done")
                    break
            play.end("max_turns")
        finally:
            play.close()
        return messages, play.ending, version

    def _ask(
        self, conversation: Sequence[Message], session: str, user: str, most: int, headers: dict[str, str] | None = None
    ) -> tuple[Message, str]:
        """Return the model's message and its version."""
        messages = [*self._preamble, *map(_sent, conversation)]
        body = {"model": self._model, "messages": messages, "tools": self._tools, "user": user}
        body |= {"temperature": TEMPERATURE, "max_tokens": most}
        try:
            answer = self._client.post("/chat/completions", json=body, headers={"X-Session-Id": session, **(headers or {})})
            answer.raise_for_status()
            return _received(answer.json()["choices"][0]["message"]), answer.headers.get("x-clawpipe-model-version", "")
        except (httpx.HTTPError, ValueError, LookupError, TypeError) as error:
            raise FailedRequestError(f"{type(error).__name__}: {error}") from None


def _talk(
    hour: int, session: str, goal: TaskItem, version: str, outcome: Outcome, mood: Mood, words: str, turns: int, seconds: float
) -> Talk:
    return Talk(
        hour=hour, session=session, item=goal.item_id, version=version, success=outcome.success, value=outcome.value,
        reason=outcome.reason, mood=mood, words=words, turns=turns, seconds=round(seconds, 2),
    )  # fmt: skip


def _sent(message: Message) -> JsonObject:
    """Return a message as OpenAI's interface takes it."""
    body: JsonObject = {"role": message.role, "content": message.content}
    if message.tool_calls:
        calls = ((call.id, {"name": call.name, "arguments": call.arguments}) for call in message.tool_calls)
        body["tool_calls"] = [{"id": name, "type": "function", "function": function} for name, function in calls]
    if message.tool_call_id is not None:
        body["tool_call_id"] = message.tool_call_id
    return body


def _received(message: Any) -> Message:
    return Message("assistant", message.get("content") or "", tuple(listed_calls(message)))
