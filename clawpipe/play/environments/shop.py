"""`shop`: answer one question by calling one of four tools that really run, then say what it returned.

    user       How many iron kettles are in stock?
    assistant  stock(item="iron kettle")
    tool       57
    assistant  The answer is 57.

Objects, cities, expressions and questions are each on one side of the held-out split, by hash of their identity. There are
thousands of objects, cities and expressions, so that every night can ask about ones that no night has asked about.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from functools import cache, lru_cache
from itertools import count as count_up
from itertools import islice, product
from typing import NamedTuple

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.core.conversation.messages import Message, ToolCall, ToolSpec
from clawpipe.data.wire.arguments import arguments_of
from clawpipe.errors import DataError
from clawpipe.play.environments.base import Hindsight, Outcome, TaskItem, question_item
from clawpipe.play.environments.shop_data import CITIES, EXAMPLES, FRAMES, OBJECTS, QUESTIONS
from clawpipe.play.environments.shop_tools import TOOLS, Shop, ToolError
from clawpipe.play.environments.split import heldout, is_heldout_split, stable_hash

_SALT = "shop-199"  # chosen so that either side has a fair share of questions: 4 of 10 or more for every tool
_OPERANDS = range(2, 51)
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
        """Return items that alternate between the tools. `seed` orders the subjects of a tool; each returns with another phrasing
        once all have been used."""
        orders = {tool: _subjects(tool, is_heldout_split(split), seed) for tool in QUESTIONS}
        phrasings = {tool: _phrasings(tool, is_heldout_split(split)) for tool in QUESTIONS}
        most = len(orders) * min(len(orders[tool]) * len(phrasings[tool]) for tool in orders)
        if count > most:
            raise DataError(f"{count} {split} items wanted, {most} to be had", self.name, "ask for fewer items")
        shop = Shop(self._inventory_seed)
        turns = islice(((tool, index) for index in count_up() for tool in orders), count)
        questions = ((tool, _question(orders[tool], phrasings[tool], index, seed)) for tool, index in turns)
        items = [self._item(shop, split, ordinal, tool, question) for ordinal, (tool, question) in enumerate(questions)]
        shop.close()
        return items

    def distinct_items(self, split: str) -> int:
        """Return the number of items before an identity repeats; stock and price share the objects."""
        shares = {"stock": 2, "price": 2}
        return len(QUESTIONS) * min(len(_subjects(tool, is_heldout_split(split), 0)) // shares.get(tool, 1) for tool in QUESTIONS)

    def start(self, item: TaskItem) -> ShopEpisode:
        return ShopEpisode(Shop(self._inventory_seed))

    def verify(self, item: TaskItem, messages: Sequence[Message]) -> Outcome:
        """Return the outcome: 0 without a well-formed call, 0.1 with one, 0.3 if it calls the right tool, 0.5 if it has the right
        result, and 1 (success) if the answer is right as well.

        Only the last turn with calls counts.
        """
        truth = json.loads(item.truth)
        calls, result = _last_call(messages)
        answer = _answer(messages)
        value, reason = _judged(truth, calls, result, answer)
        evidence = {"calls": [_shown(call) for call in calls], "result": result, "answer": answer, "truth": truth}
        return Outcome(value, value == 1.0, reason, evidence)

    def hindsight(self, item: TaskItem, messages: Sequence[Message]) -> Hindsight:
        """Return two hints, the right tool with its argument, and the same with the result; and the right dialogue."""
        truth = json.loads(item.truth)
        tool, subject, result = truth["tool"], truth["subject"], truth["result"]
        call = f'Use the tool {tool} with the {_parameter(tool)} "{subject}".'
        dialogue = _dialogue("call_hindsight", tool, item.messages[-1].content, subject, result)
        return Hindsight((call, f"{call} It returns {result}, so say: The answer is {result}."), tuple(dialogue[1:]))

    def _item(self, shop: Shop, split: str, ordinal: int, tool: str, question: Question) -> TaskItem:
        truth = {"tool": tool, "subject": question.subject, "result": shop.look_up(tool, question.subject)}
        return question_item(self, split, ordinal, identity=question.identity, part=tool, question=question.text, truth=truth)


class ShopEpisode:
    """An episode that executes the policy's calls until it answers without one."""

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


class Subject(NamedTuple):
    identity: str
    text: str


class Question(NamedTuple):
    identity: str
    subject: str
    text: str


def _question(subjects: Sequence[Subject], phrasings: Sequence[str], index: int, seed: int) -> Question:
    """Return question number `index`: the subjects in order, with another phrasing in each round."""
    lap, place = divmod(index, len(subjects))
    subject = subjects[place]
    phrasing = phrasings[(stable_hash(f"{seed}/{subject.text}") + lap) % len(phrasings)]
    return Question(subject.identity, subject.text, phrasing.format(x=subject.text))


@cache
def _phrasings(tool: str, wanted: bool) -> list[str]:
    """Return the phrasings on one side of the split. The question alone decides the side, not the frame around it."""
    questions = [text for text in QUESTIONS[tool] if heldout(f"phrasing/{tool}/{text}", 0.5, _SALT) == wanted]
    return [frame.format(q=question) for question in questions for frame in FRAMES]


@lru_cache(maxsize=32)
def _subjects(tool: str, wanted: bool, seed: int) -> list[Subject]:
    """Return every subject of `tool` on one side of the split, each identity once, in an order that `seed` decides.

    Stock and price have the same objects: the first half for stock is the second half for price.
    """
    found = [subject for subject in _all_subjects(tool, seed) if heldout(subject.identity, 0.5, _SALT) == wanted]
    ordered = sorted(found, key=lambda subject: stable_hash(f"{seed}/{subject.identity}"))
    first = int(tool == "price")
    return ordered[first::2] + ordered[1 - first :: 2] if tool in ("stock", "price") else ordered


def _all_subjects(tool: str, seed: int) -> Iterator[Subject]:
    if tool == "calc":
        yield from _expressions(seed)
    elif tool == "weather":
        yield from (Subject(f"city/{city}", city) for city in CITIES)
    else:  # one object is one identity for both tools
        yield from (Subject(f"object/{name}", name) for name in OBJECTS)


def _expressions(seed: int) -> Iterator[Subject]:
    """Yield the arithmetic expressions. 3 + 7 and 7 + 3 share an identity and hence a side; `seed` decides which one is asked."""
    for sign, left, right in product("+-*", _OPERANDS, _OPERANDS):
        if left < right:
            name = f"{right} - {left}" if sign == "-" else f"{left} {sign} {right}"
            swapped = sign != "-" and stable_hash(f"{seed}/swapped/{name}") % 2
            yield Subject(f"calc/{name}", f"{right} {sign} {left}" if swapped else name)


def _dialogue(call_id: str, tool: str, question: str, argument: str, result: str) -> list[Message]:
    call = ToolCall(call_id, tool, json.dumps({_parameter(tool): argument}))
    return [
        Message("user", question),
        Message("assistant", "", (call,)),
        Message("tool", result, tool_call_id=call_id, name=tool),
        Message("assistant", f"The answer is {result}."),
    ]


def _parameter(tool: str) -> str:
    (parameter,) = next(spec.arguments for spec in TOOLS if spec.name == tool)
    return parameter


def _last_call(messages: Sequence[Message]) -> tuple[tuple[ToolCall, ...], str | None]:
    """Return the calls of the last turn with calls, and the result of the first one (None if it was not executed)."""
    calls = next((message.tool_calls for message in reversed(messages) if message.tool_calls), ())
    results = {message.tool_call_id: message.content for message in messages if message.role == "tool"}
    return calls, results.get(calls[0].id) if calls else None


def _answer(messages: Sequence[Message]) -> str | None:
    """Return the text after "The answer is" in a final message without calls; None without such a message."""
    if not messages or messages[-1].role != "assistant" or messages[-1].tool_calls:
        return None
    match = _ANSWER.search(messages[-1].content)
    return _normal(match[1].strip().removesuffix(".")) if match else None


def _judged(truth: JsonObject, calls: Sequence[ToolCall], result: str | None, answer: str | None) -> tuple[float, str]:
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


def _asks_for(call: ToolCall, truth: JsonObject) -> bool:
    """Return whether a call asks for the item's subject, since two items may have equal stock; an expression may differ."""
    given = arguments_of(call).values()
    return truth["tool"] == "calc" or [_normal(str(value)) for value in given] == [_normal(truth["subject"])]


def _normal(text: str) -> str:
    return " ".join(text.casefold().split())


def _shown(call: ToolCall) -> JsonObject:
    return {"name": call.name, "arguments": call.arguments, "malformed": call.malformed}
