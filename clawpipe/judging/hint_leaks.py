"""Remove hints that contain the truth of a held-out item, because a model trained on them would know the answer."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from clawpipe.json_types import JsonObject

Row = Mapping[str, Any]

_SHORTEST = 12  # characters of a truth; shorter ones, such as a number, are in many a sentence by chance
_REASON = "gives away a held-out truth"
_WORD = re.compile(r"\w+")


class HintLeaks:
    """Removes and counts hints that contain a held-out truth word for word, apart from case, spaces and punctuation.

    A text of a truth does not count if the item's question contains it, if it is also the truth of a train item, or if it has fewer
    than 12 characters. The verifier's own hints stay, because they concern their own item only.

    Args:
        items: rows of `task_items`.
    """

    def __init__(self, items: Iterable[Row]) -> None:
        held, trained = set[str](), set[str]()
        for item in items:
            (held if item["split"] == "heldout" else trained).update(_answers(item))
        self._truths = sorted(held - trained)
        self._left_out = 0

    def cleared(self, scores: Sequence[JsonObject]) -> list[JsonObject]:
        """Return rows of `scores` without such hints."""
        return [row if row["origin"] == "verifier" or not row["hints"] else self._cleared(row) for row in scores]

    def details(self) -> JsonObject:
        """Return the number of hints that were left out, by reason, where there are any."""
        return {"hints_left_out": {_REASON: self._left_out}} if self._left_out else {}

    def _cleared(self, row: JsonObject) -> JsonObject:
        kept = [hint for hint in row["hints"] if not self._gives_away(hint)]
        self._left_out += len(row["hints"]) - len(kept)
        return row | {"hints": kept or None}

    def _gives_away(self, hint: str) -> bool:
        words = _words(hint)
        return any(truth in words for truth in self._truths)


def _answers(item: Row) -> Iterator[str]:
    """Yield the texts of an item's truth that its other columns do not say."""
    shown = _words(" ".join(_texts({name: value for name, value in item.items() if name != "truth"})))
    for text in map(_words, _texts(json.loads(item["truth"]))):
        if len(text.strip()) >= _SHORTEST and text not in shown:
            yield text


def _words(text: str) -> str:
    """Return the words of a text in lower case, with a space around each."""
    return f" {' '.join(_WORD.findall(text.casefold()))} "


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _texts(inner)
    elif isinstance(value, str | float | int):
        yield str(value)
