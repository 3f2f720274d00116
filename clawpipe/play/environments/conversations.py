"""`conversations`: an environment without tasks, for nights whose verdict rests on held-out stored conversations."""

from __future__ import annotations

from collections.abc import Sequence

from clawpipe.core.conversation.messages import Message, ToolSpec
from clawpipe.play.environments.base import Outcome, TaskItem
from clawpipe.play.environments.single_turn import OneReply
from clawpipe.play.environments.split import is_heldout_split


class ConversationsEnvironment:
    """The conversations of the night's stored data: nothing is generated, and no reply is verified."""

    name = "conversations"
    kind = "chat"

    def tools(self) -> list[ToolSpec]:
        """Return none: each conversation brings the tools that it was held with."""
        return []

    def preamble(self) -> list[Message]:
        """Return none: each conversation brings its own system message, if it has one."""
        return []

    def items(self, split: str, count: int, seed: int) -> list[TaskItem]:
        """Return none: the held-out items are conversations, which the night draws from its stored data."""
        is_heldout_split(split)
        return []

    def start(self, item: TaskItem) -> OneReply:
        """Begin an episode, which ends after the policy's reply."""
        return OneReply()

    def verify(self, item: TaskItem, messages: Sequence[Message]) -> Outcome:
        """Verify nothing.

        Raises:
            ValueError: always, because nobody knows whether a reply to a recorded conversation is right.
        """
        raise ValueError("a recorded conversation says what was answered, and not whether another answer is right")
