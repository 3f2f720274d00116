"""The environments of benchmarks/years.py. Each night asks another mix of kinds: of characters, or of the shop's tools."""

from __future__ import annotations

import json
import string
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from clawpipe.core.config.quotas import quotas
from clawpipe.core.conversation.messages import Message, ToolSpec
from clawpipe.play.environments.base import Outcome, TaskItem, question_item
from clawpipe.play.environments.shop import ShopEnvironment
from clawpipe.play.environments.shop_data import QUESTIONS
from clawpipe.play.environments.split import heldout, is_heldout_split, stable_hash

KINDS = {"lower": string.ascii_lowercase, "upper": string.ascii_uppercase, "digits": string.digits, "marks": string.punctuation}
TOOLS = tuple(QUESTIONS)
VERDICTS = ("right", "inverted", "random", "none")  # what the train items' rewards say; held-out ones are right


class CharactersEnvironment:
    """A question names a kind of characters; the value is the share of the answer's characters that are of it.

    Args:
        tonight: a JSON file: {"mix": {kind: weight}, "verdicts": one of VERDICTS}, of the train items. The held-out ones are of all
            kinds alike.
    """

    name = "characters"
    kind = "chat"

    def __init__(self, tonight: str) -> None:
        self._tonight = json.loads(Path(tonight).read_bytes())

    def tools(self) -> list[ToolSpec]:
        return []

    def preamble(self) -> list[Message]:
        return []

    def items(self, split: str, count: int, seed: int) -> list[TaskItem]:
        is_heldout = is_heldout_split(split)
        mix = dict.fromkeys(KINDS, 1.0) if is_heldout else self._tonight["mix"]
        return [self._item(split, seed, ordinal, kind) for ordinal, kind in enumerate(_kinds(mix, count))]

    def distinct_items(self, split: str) -> int:
        return 100_000

    def start(self, item: TaskItem) -> _OneAnswer:
        return _OneAnswer()

    def verify(self, item: TaskItem, messages: Sequence[Message]) -> Outcome:
        answer, wanted = messages[-1].content, json.loads(item.truth)
        share = sum(character in KINDS[item.slice] for character in answer) / len(answer) if answer else 0.0
        value = {
            "right": share,
            "inverted": 1.0 - share,
            "none": 0.0,
            "random": stable_hash(f"{item.item_id}/{answer}") % 2 * 1.0,
        }[wanted["verdicts"]]
        return Outcome(value, value == 1.0, wanted["verdicts"], {"share": share})

    def _item(self, split: str, seed: int, ordinal: int, kind: str) -> TaskItem:
        asked = (f"{kind[0] * 6}{stable_hash(f'{seed}/{ordinal}/{n}') % 10**6:06}" for n in range(10**6))
        question = next(one for one in asked if heldout(one, 0.5) == (split == "heldout"))
        verdicts = "right" if split == "heldout" else self._tonight["verdicts"]
        return question_item(self, split, ordinal, identity=question, part=kind, question=question, truth={"verdicts": verdicts})


class DriftingShopEnvironment(ShopEnvironment):
    """The shop, of which the train items are of the mix of tools in the file `tonight`, as above; its verdicts are always right."""

    name = "drifting-shop"

    def __init__(self, tonight: str) -> None:
        super().__init__()
        self._mix: dict[str, float] = json.loads(Path(tonight).read_bytes())["mix"]

    def items(self, split: str, count: int, seed: int) -> list[TaskItem]:
        if is_heldout_split(split):
            return super().items(split, count, seed)
        every = super().items(split, count * len(TOOLS), seed)
        of = {tool: iter([item for item in every if item.slice == tool]) for tool in TOOLS}
        return [replace(next(of[tool]), ordinal=ordinal) for ordinal, tool in enumerate(_kinds(self._mix, count))]


class _OneAnswer:
    """An episode that ends with the first answer."""

    def respond(self, messages: Sequence[Message]) -> None:
        return None

    def close(self) -> None:
        pass


def _kinds(mix: dict[str, float], count: int) -> list[str]:
    """Return the kinds of the items in proportion, so mixed that each beginning is in proportion, too."""
    asked: list[str] = []
    for number in range(1, count + 1):
        wanted = quotas(number, list(mix.values()))
        behind = {kind: quota - asked.count(kind) for kind, quota in zip(mix, wanted, strict=True)}
        asked.append(max(behind, key=lambda kind: behind[kind]))
    return asked
