"""Play an episode: ask its environment for answers, and at its end for a verdict, whatever the environment's code does."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any, Literal, Protocol, TypeVar

from clawpipe.core.conversation.messages import Message, ToolSpec
from clawpipe.core.user_code.extensions import in_one_line
from clawpipe.errors import ClawpipeError, DataError
from clawpipe.play.environments.base import Answer, Finishes, Reason, TaskItem, Verdict
from clawpipe.play.environments.calling import CallTimeoutError, EndedError, called
from clawpipe.play.environments.ending import Ending
from clawpipe.play.environments.made import answer_of, verdict_of

T = TypeVar("T")
_LOG = logging.getLogger(__name__)
_OVER = Answer(done=True)


class Plays(Protocol):
    """What episodes are played in: an environment, here or in a process of its own. `start` takes the item, and may take a seed."""

    def tools(self) -> list[ToolSpec]: ...

    def preamble(self) -> list[Message]: ...

    @property
    def start(self) -> Callable[..., Any]: ...


class Play:
    """An episode in play. What the environment raises ends this episode, and no other; errors of clawpipe's own are raised, but for
    those of data: a task's files that do not fit are the fault of that task.

    Args:
        seed: of the episode, for `start`.
        too_long: why the policy cannot be asked; "": it can. Otherwise the episode has ended before it began.
    """

    def __init__(self, environment: Plays, item: TaskItem, seed: int, too_long: str = "") -> None:
        self._timed_out = False
        self._reason: Reason | None = "length" if too_long else None
        self._verdict: Verdict | None = None
        self._error = too_long
        self._rewards: list[float | None] = []
        self._episode = None if too_long else self._asked("start", lambda: called(environment.start, item, seed=seed))
        if self._episode is None:
            self._reason = self._reason or self._failure

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
        episode = self._episode
        assert episode
        answer = self._asked("respond", lambda: answer_of(episode.respond(messages)))
        self._rewards.append(answer.reward if answer else None)
        if answer is None:
            self.end(self._failure)
        return answer or _OVER

    def end(self, reason: Reason) -> None:
        """End the episode: ask for its verdict while its world still stands, and close it. The first reason counts."""
        if self.over:
            return
        self._reason = reason
        episode = self._episode
        if isinstance(episode, Finishes):
            self._verdict = self._asked("finish", lambda: verdict_of(episode.finish(reason)))
        self.close()

    @property
    def _failure(self) -> Literal["timeout", "error"]:
        return "timeout" if self._timed_out else "error"

    def close(self) -> None:
        """Close the episode, if it is open. An error of that is for the log: what is recorded is right without it."""
        episode, self._episode = self._episode, None
        if episode is not None:
            try:
                episode.close()
            except (ClawpipeError, MemoryError):
                raise
            except Exception as error:
                _LOG.warning("an episode did not close: %s", _told(error))

    def _asked(self, member: str, function: Callable[[], T]) -> T | None:
        """Call a member of the user's class; None, and the first error is recorded, if it raises."""
        try:
            return function()
        except DataError as error:
            self._error = self._error or f"{member}: {error}"
            return None
        except (ClawpipeError, MemoryError):
            raise
        except Exception as error:
            self._timed_out = isinstance(error, CallTimeoutError)
            self._error = self._error or f"{member}: {_told(error)}"
            return None


def _told(error: Exception) -> str:
    return str(error) if isinstance(error, CallTimeoutError | EndedError) else in_one_line(error)
