"""Write the prompt that asks a judge to rank the rollouts of an item, whose common beginning it is shown once."""

from __future__ import annotations

from collections.abc import Sequence
from string import ascii_uppercase
from typing import Any, NamedTuple

from clawpipe.core.conversation.messages import Message
from clawpipe.core.store.digests import sha256_json
from clawpipe.play.judging.judge_prompt import JudgePrompt, asked
from clawpipe.play.judging.shown import cut, messages_shown, size_of

MOST_AT_ONCE = len(ascii_uppercase)
SHARED = 2  # rollouts that all parts of a group have in common
_LEAST_IN_A_PART = 4  # rollouts, for whose sake each is cut: the shared ones, and two more
_SYSTEM_TEXT, _CONVERSATION, _MESSAGE = 3000, 12000, 3000  # bytes

_LAYOUT = """You rank what several attempts of an assistant at the same task came to. {data}
"system" and "conversation" are what all of them were given, "rollouts" what each said and did, and what its tools returned. Their
names and their order were drawn by lot.

Judge which serve this user best: what was asked for, how it was wanted, and what is true and was really done. Length is no merit.
{rubric}
Think, and end with one JSON object, and no other, that has this code. It names every rollout once, the best first; those that
are equally good stand in a list of their own:
{{"code": "CODE", "ranking": ["NAME", ["NAME", "NAME"], "NAME"]}}"""


class Group(NamedTuple):
    """The rollouts of an item as a judge is shown them.

    Attributes:
        system, conversation: what all have in common.
        rollouts: the rest of each, as it is shown; equal ones once, in an order that their content decides.
        members: for each rollout that was given its place among `rollouts`.
    """

    system: str
    conversation: list[dict[str, Any]]
    rollouts: list[list[dict[str, Any]]]
    members: list[int]

    @property
    def sizes(self) -> list[int]:
        return [size_of(rollout) for rollout in self.rollouts]

    @property
    def counts(self) -> list[int]:
        return [self.members.count(place) for place in range(len(self.rollouts))]


def group_of(rollouts: Sequence[Sequence[Message]], shown: int) -> Group:
    """Return rollouts as a group, each cut so that four of them have at most `shown` bytes."""
    common = _common(rollouts)
    before = rollouts[0][:common]
    rests = [messages_shown(one[common:], shown // _LEAST_IN_A_PART - _MESSAGE, _MESSAGE) for one in rollouts]
    by_digest = {sha256_json(rest): rest for rest in rests}
    order = sorted(by_digest)
    system = "\n".join(message.content for message in before if message.role == "system")
    conversation = messages_shown([message for message in before if message.role != "system"], _CONVERSATION, _MESSAGE)
    members = [order.index(sha256_json(rest)) for rest in rests]
    return Group(cut(system, _SYSTEM_TEXT), conversation, [by_digest[digest] for digest in order], members)


def group_prompt(group: Group, part: Sequence[int], number: int, rubric: str = "") -> tuple[JudgePrompt, list[int]]:
    """Return the question about a part of a group, and the members in the order in which it shows them.

    Args:
        number: of the ranking: each shows another order.
    """
    order = sorted(part, key=lambda member: sha256_json([number, group.rollouts[member]]))
    names = ascii_uppercase[: len(order)]
    rollouts = [{"name": name, "messages": group.rollouts[member]} for name, member in zip(names, order, strict=True)]
    shown = {"system": group.system, "conversation": group.conversation, "rollouts": rollouts}
    one = {"type": "string", "enum": list(names)}
    ranking = {"type": "array", "items": {"anyOf": [one, {"type": "array", "items": one}]}}
    return asked(_LAYOUT, rubric, shown, {"ranking": ranking}, tuple(names)), order


def _common(rollouts: Sequence[Sequence[Message]]) -> int:
    """Return how many messages all rollouts begin with."""
    shortest = min(map(len, rollouts))
    return next((place for place in range(shortest) if any(one[place] != rollouts[0][place] for one in rollouts)), shortest)
