"""Play an episode: ask its environment for answers, and at its end for a verdict, whatever the environment's code does."""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from clawpipe.environments.base import Answer, Environment, Finishes, Reason, TaskItem, Verdict
from clawpipe.environments.ending import Ending, written
from clawpipe.errors import ClawpipeError
from clawpipe.extensions import in_one_line
from clawpipe.messages import Message

T = TypeVar("T")
_LOG = logging.getLogger(__name__)
_OVER = Answer(done=True)


class Play:
    """An episode in play. What the environment raises ends this episode, and no other; errors of clawpipe's own are raised."""

    def __init__(self, environment: Environment, item: TaskItem) -> None:
        self._reason: Reason | None = None
        self._verdict: Verdict | None = None
        self._error = ""
        self._rewards: list[float | None] = []
        self._episode = self._asked("start", environment.start, item)
        if self._episode is None:
            self._reason = "error"

    @property
    def over(self) -> bool:
        """Whether the episode has ended."""
        return self._reason is not None

    @property
    def ending(self) -> Ending:
        """What is recorded of the episode's end."""
        return Ending(self._reason, self._verdict, self._error, tuple(self._rewards))

    def answer(self, messages: Sequence[Message]) -> Answer:
        """Return the environment's answer to a turn of the policy, the last message. One that is done has to be followed by
        `end`."""
        assert self._episode
        answer = self._asked("respond", lambda: _answer(self._episode.respond(messages)))
        self._rewards.append(answer.reward if answer else None)
        if answer is None:
            self.end("error")
        return answer or _OVER

    def end(self, reason: Reason) -> None:
        """End the episode: ask for its verdict while its world still stands, and close it. The first reason counts."""
        if self.over:
            return
        self._reason = reason
        if isinstance(self._episode, Finishes):
            self._verdict = self._asked("finish", lambda episode: _verdict(episode.finish(reason)), self._episode)
        self.close()

    def close(self) -> None:
        """Close the episode, if it is open. An error of that is for the log: what is recorded is right without it."""
        episode, self._episode = self._episode, None
        if episode is not None:
            try:
                episode.close()
            except (ClawpipeError, MemoryError):
                raise
            except Exception as error:
                _LOG.warning("an episode did not close: %s", in_one_line(error))

    def _asked(self, member: str, function: Callable[..., T], *arguments: Any) -> T | None:
        """Call a member of the user's class; None, and the first error is recorded, if it raises."""
        try:
            return function(*arguments)
        except (ClawpipeError, MemoryError):
            raise
        except Exception as error:
            self._error = self._error or f"{member}: {in_one_line(error)}"
            return None


def _answer(said: Any) -> Answer:
    answer = said if isinstance(said, Answer) else Answer(said if said is not None else (), done=said is None)
    if not isinstance(answer.messages, list | tuple) or not all(isinstance(message, Message) for message in answer.messages):
        raise TypeError(f"respond returns a list of messages, an Answer or None, not {said!r:.80}")
    if answer.reward is not None and not math.isfinite(answer.reward):
        raise ValueError(f"the reward of a turn is a finite number, not {answer.reward}")
    return answer


def _verdict(said: Any) -> Verdict | None:
    if said is not None and not isinstance(said, Verdict):
        raise TypeError(f"finish returns a Verdict or None, not {said!r:.80}")
    return Verdict(json.loads(written(said))) if said is not None else None  # as it will be read, a tuple as a list
