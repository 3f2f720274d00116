"""Where the tools that a model calls are run: in the environment that it was trained in, if its name alone says how to make it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.core.conversation.messages import Message, ToolCall
from clawpipe.data.wire.arguments import listed_calls
from clawpipe.errors import ClawpipeError
from clawpipe.play.environments.base import TaskItem
from clawpipe.play.environments.hosted import open_environment
from clawpipe.play.environments.play import Play, Plays

_SECONDS = 60.0  # of a call
_NOBODYS = TaskItem("chat", "chat", "", "chat", "train", "all", (), "{}", 0)

ByHand = Callable[[ToolCall], str]


class Bench:
    """Runs calls in an episode that lasts as long as the conversation; what that cannot run is asked of a person.

    Args:
        world: the environment; None: there is none.
        by_hand: asks a person for a call's result.
    """

    def __init__(self, world: Plays | None, by_hand: ByHand) -> None:
        self._world, self._by_hand = world, by_hand
        self._play: Play | None = None

    def begin(self) -> None:
        """Begin a new conversation."""
        self.close()
        self._play = Play(self._world, _NOBODYS, 0) if self._world else None

    def close(self) -> None:
        if self._play:
            self._play.close()
        self._play = None

    def run(self, conversation: Sequence[JsonObject]) -> list[JsonObject]:
        """Return the results of the calls of the last message, in request form."""
        calls = listed_calls(conversation[-1])
        said = self._said([_message(one) for one in conversation]) if self._play and not self._play.over else {}
        return [_result(call, said[call.id] if call.id in said else self._by_hand(call)) for call in calls]

    def _said(self, messages: Sequence[Message]) -> dict[str, str]:
        """Return what the environment answers, by the ids of calls."""
        assert self._play
        answer = self._play.answer(messages)
        return {one.tool_call_id: one.content for one in answer.messages if one.tool_call_id}


@contextmanager
def bench_of(environment: str, by_hand: ByHand, asked_for: bool = False) -> Iterator[Bench]:
    """Yield where calls are run: in an environment made without options.

    Args:
        environment: its name; "": none.
        asked_for: whether it is an error that it cannot be made so; else calls are run by hand.

    Raises:
        NotFoundError, ConfigError: it cannot be made, and was asked for.
    """
    with ExitStack() as stack:
        world = None
        with nullcontext() if asked_for else suppress(ClawpipeError):
            world = stack.enter_context(open_environment(environment, {}, _SECONDS)) if environment else None
        bench = Bench(world, by_hand)
        stack.callback(bench.close)
        bench.begin()
        yield bench


def _message(one: JsonObject) -> Message:
    return Message(one["role"], one["content"], tuple(listed_calls(one)), one.get("tool_call_id"), one.get("name"))


def _result(call: ToolCall, content: str) -> JsonObject:
    return {"role": "tool", "tool_call_id": call.id, "content": content}
