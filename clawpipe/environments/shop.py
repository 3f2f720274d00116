"""`shop`: answer one question by calling one of four tools that really run, then say what it returned.

    user       How many iron kettles are in stock?
    assistant  stock(item="iron kettle")
    tool       57
    assistant  The answer is 57.

Objects, cities, expressions and phrasings are each on one side of the held-out split, by hash of their identity.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from clawpipe.environments.base import Hindsight, Outcome, TaskItem, question_item
from clawpipe.environments.shop_data import CITIES, EXAMPLES, OBJECTS, PHRASINGS
from clawpipe.environments.shop_tools import TOOLS, Shop, ToolError, arguments_of
from clawpipe.environments.split import heldout, is_heldout_split, stable_hash
from clawpipe.errors import DataError
from clawpipe.messages import Message, ToolCall, ToolSpec

_SALT = "shop-199"  # chosen so that either side has a fair share of phrasings: 4 of 10 or more for every tool
_OPERANDS = range(2, 31)
_SUBJECTS = {"stock": "object", "price": "object", "weather": "city", "calc": "calc"}  # one object is one identity for both tools
_ANSWER = re.compile(r"the answer is (.*)", re.IGNORECASE | re.DOTALL)


class ShopEnvironment:
    """Answer one question with one of four tools: stock, price, weather or calculator.

    Args:
        inventory_seed: decides stock, prices and weather.
    """

    name = "shop"
    kind = "tool-call"

    def __init__(self, inventory_seed: int = 0) -> None:
        self._inventory_seed = inventory_seed

    def tools(self) -> list[ToolSpec]:
        return list(TOOLS)

    def preamble(self) -> list[Message]:
        messages = [Message("system", "Use exactly one tool to answer. Never answer from memory.")]
        for index, (tool, question, argument, result) in enumerate(EXAMPLES):
            messages += _dialogue(f"call_example_{index}", tool, question.format(x=argument), argument, result)
        return messages

    def items(self, split: str, count: int, seed: int) -> list[TaskItem]:
        """Tools take turns; within a tool, questions come in an order that `seed` decides."""
        orders = {tool: _questions(tool, is_heldout_split(split), seed) for tool in PHRASINGS}
        rounds = min(map(len, orders.values()))
        if count > rounds * len(orders):
            raise DataError(f"{count} {split} items wanted, {rounds * len(orders)} to be had", self.name, "ask for fewer items")
        shop = Shop(self._inventory_seed)
        turns = [(tool, orders[tool][index]) for index in range(rounds) for tool in orders]
        items = [self._item(shop, split, ordinal, *turn) for ordinal, turn in enumerate(turns[:count])]
        shop.close()
        return items

    def start(self, item: TaskItem) -> ShopEpisode:
        return ShopEpisode(Shop(self._inventory_seed))

    def verify(self, item: TaskItem, messages: Sequence[Message]) -> Outcome:
        """0 no call that parses; 0.1 one that does; 0.3 of the right tool; 0.5 with the right result; 1 and so is the answer.

        The last turn with calls is the one that is judged.
        """
        truth = json.loads(item.truth)
        calls, result = _last_call(messages)
        answer = _answer(messages)
        value, reason = _judged(truth, calls, result, answer)
        evidence = {"calls": [_shown(call) for call in calls], "result": result, "answer": answer, "truth": truth}
        return Outcome(value, value == 1.0, reason, evidence)

    def hindsight(self, item: TaskItem, messages: Sequence[Message]) -> Hindsight:
        """The right tool and its argument; the same with the result; and the right dialogue."""
        truth = json.loads(item.truth)
        tool, subject, result = truth["tool"], truth["subject"], truth["result"]
        call = f'Use the tool {tool} with the {_parameter(tool)} "{subject}".'
        dialogue = _dialogue("call_hindsight", tool, item.messages[-1].content, subject, result)
        return Hindsight((call, f"{call} It returns {result}, so say: The answer is {result}."), tuple(dialogue[1:]))

    def _item(self, shop: Shop, split: str, ordinal: int, tool: str, question: Question) -> TaskItem:
        truth = {"tool": tool, "subject": question.subject, "result": shop.look_up(tool, question.subject)}
        return question_item(self, split, ordinal, identity=question.identity, part=tool, question=question.text, truth=truth)


class ShopEpisode:
    """Executes what the policy calls, until it answers."""

    def __init__(self, shop: Shop) -> None:
        self._shop = shop

    def respond(self, messages: Sequence[Message]) -> list[Message] | None:
        calls = messages[-1].tool_calls
        if not calls:
            return None
        return [Message("tool", self._result(call, len(calls)), tool_call_id=call.id, name=call.name) for call in calls]

    def close(self) -> None:
        self._shop.close()

    def _result(self, call: ToolCall, calls: int) -> str:
        if calls > 1:  # calling everything is no way to choose a tool
            return "error: one call at a time"
        try:
            return self._shop.execute(call)
        except ToolError as error:
            return f"error: {error}"


class Question(NamedTuple):
    identity: str
    subject: str
    text: str


def _questions(tool: str, wanted: bool, seed: int) -> list[Question]:
    """Every question about `tool` on one side of the split, in the order of `seed`."""
    phrasings = [text for text in PHRASINGS[tool] if heldout(f"phrasing/{tool}/{text}", 0.5, _SALT) == wanted]
    identities = {subject: f"{_SUBJECTS[tool]}/{_canonical(tool, subject)}" for subject in _subjects(tool)}
    subjects = [subject for subject, identity in identities.items() if heldout(identity, 0.5, _SALT) == wanted]
    questions = [Question(identities[subject], subject, text.format(x=subject)) for subject in subjects for text in phrasings]
    return sorted(questions, key=lambda question: stable_hash(f"{seed}/{question.text}"))


def _subjects(tool: str) -> list[str]:
    if tool != "calc":
        return list(CITIES if tool == "weather" else OBJECTS)
    pairs = [(left, right) for left in _OPERANDS for right in _OPERANDS]
    return [f"{left} {sign} {right}" for sign in "+-*" for left, right in pairs if sign != "-" or left > right]


def _canonical(tool: str, subject: str) -> str:
    """3 + 7 and 7 + 3 are one exercise: they have one identity, so they are on one side."""
    left, _, rest = subject.partition(" ")
    if tool != "calc" or rest.startswith("-"):
        return subject
    sign, right = rest.split()
    return f"{min(left, right, key=int)} {sign} {max(left, right, key=int)}"


def _dialogue(call_id: str, tool: str, question: str, argument: str, result: str) -> list[Message]:
    call = ToolCall(call_id, tool, json.dumps({_parameter(tool): argument}))
    return [
        Message("user", question),
        Message("assistant", "", (call,)),
        Message("tool", result, tool_call_id=call_id, name=tool),
        Message("assistant", f"The answer is {result}."),
    ]


def _parameter(tool: str) -> str:
    (parameter,) = next(spec.parameters for spec in TOOLS if spec.name == tool)
    return parameter


def _last_call(messages: Sequence[Message]) -> tuple[tuple[ToolCall, ...], str | None]:
    """The calls of the last turn that has any, and what the first of them returned (None: it was not executed)."""
    calls = next((message.tool_calls for message in reversed(messages) if message.tool_calls), ())
    results = {message.tool_call_id: message.content for message in messages if message.role == "tool"}
    return calls, results.get(calls[0].id) if calls else None


def _answer(messages: Sequence[Message]) -> str | None:
    """The one value after "The answer is" in a closing message without calls; whatever else stands there is part of it."""
    if not messages or messages[-1].role != "assistant" or messages[-1].tool_calls:
        return None
    match = _ANSWER.search(messages[-1].content)
    return _normal(match[1].strip().removesuffix(".")) if match else None


def _judged(truth: dict[str, Any], calls: Sequence[ToolCall], result: str | None, answer: str | None) -> tuple[float, str]:
    if not any(not call.malformed for call in calls):
        return 0.0, "no call" if not calls else "malformed call"
    if len(calls) > 1:
        return 0.1, "several calls at once"
    if calls[0].name != truth["tool"]:
        return 0.1, "wrong tool"
    if result != truth["result"] or not _asks_for(calls[0], truth):
        return 0.3, "wrong arguments"
    if answer != _normal(truth["result"]):
        return 0.5, "right call, wrong answer"
    return 1.0, "right call, right answer"


def _asks_for(call: ToolCall, truth: dict[str, Any]) -> bool:
    """Another item may happen to have the same stock, so the subject counts too; of an expression, only the value does."""
    given = arguments_of(call).values()
    return truth["tool"] == "calc" or [_normal(str(value)) for value in given] == [_normal(truth["subject"])]


def _normal(text: str) -> str:
    return " ".join(text.casefold().split())


def _shown(call: ToolCall) -> dict[str, Any]:
    return {"name": call.name, "arguments": call.arguments, "malformed": call.malformed}
