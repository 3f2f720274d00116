"""The tokens of an episode's histories: a prompt that continues a turn begins with that turn's tokens, as they were sampled.

A program sends text, and the text of sampled tokens may be other tokens when it is tokenized anew. The turn would then be no part
of what the policy sees, and the two turns would be two rows.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import NamedTuple

from clawpipe.core.conversation.messages import Message
from clawpipe.core.store.plain_digests import sha256_plain
from clawpipe.data.wire.arguments import comparable
from clawpipe.model.policy.renderer import Renderer


class _Known(NamedTuple):
    ids: list[int]
    finish_reason: str


class Histories:
    """The tokens of whole turns, by the tools and messages up to them.

    Args:
        ends: tokens that end a turn.
    """

    def __init__(self, ends: Sequence[int]) -> None:
        self._ends = frozenset(ends)
        self._known: dict[str, _Known] = {}

    def add(self, tools: str, messages: Sequence[Message], prompt: Sequence[int], sampled: Sequence[int], cut: bool) -> None:
        """Remember a turn, the last of `messages`, whose text is that of its tokens: with the stop string, if one ended it.

        Args:
            cut: whether it was cut at a limit or at a stop string.
        """
        if cut or (sampled and sampled[-1] in self._ends):
            self._known[_name(tools, messages)] = _Known([*prompt, *sampled], "length" if cut else "stop")

    def prompt(self, renderer: Renderer, tools: str, messages: Sequence[Message]) -> list[int] | None:
        """Return the tokens of a prompt that continues a turn; None if it continues none."""
        turns = [place for place, message in enumerate(messages, start=1) if message.role == "assistant"]
        known = self._known.get(_name(tools, messages[: turns[-1]])) if turns else None
        return [*known.ids, *renderer.continuation(known.finish_reason, messages[turns[-1] :])] if known else None


def _name(tools: str, messages: Sequence[Message]) -> str:
    said = [[message.role, message.content.strip(), [comparable(call) for call in message.tool_calls]] for message in messages]
    return sha256_plain([tools, json.dumps(said)])
