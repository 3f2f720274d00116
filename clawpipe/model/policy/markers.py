"""Keep text from becoming a marker: what a message spells like one is taken out before a template runs, and is encoded as text."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from tokenizers import Tokenizer
    from transformers import PreTrainedTokenizerFast

_KEPT = re.compile("\ue000([0-9]+)\ue001")  # stands for a marker that a message spells, while the template runs
TURN = "\ue002"  # the text of a turn whose place in a conversation is looked for


class Written(NamedTuple):
    """The output of a template, in which placeholders stand for markers that messages contain as text."""

    text: str
    kept: tuple[str, ...]

    def after(self, place: int) -> Written:
        return Written(self.text[place:], self.kept)

    def before(self, place: int) -> Written:
        return Written(self.text[:place], self.kept)

    @property
    def plain(self) -> str:
        """The text with the markers that messages contain."""
        return _KEPT.sub(lambda found: self.kept[int(found[1])], self.text)

    def ids(self, template: Tokenizer, backend: Tokenizer) -> list[int]:
        """Return the ids of the text by `template`, which finds markers, and of those that messages spell by `backend`."""
        parts = _KEPT.split(self.text)
        texts = [(part, template) for part in parts[::2]]
        kept = [(self.kept[int(number)], backend) for number in parts[1::2]]
        ordered = [texts[0], *(entry for pair in zip(kept, texts[1:], strict=True) for entry in pair)]
        return [token for text, encoder in ordered if text for token in _encoded(encoder, text)]


def without_markers(value: Any, markers: str, spelled: list[str], kept: str = "") -> Any:
    """Return a JSON value whose texts have placeholders for what matches `markers`, which goes to the end of `spelled`.

    Args:
        kept: a text that stays as it is.
    """
    if isinstance(value, str):
        return value if value == kept else re.sub(markers, lambda found: _keep(found[0], spelled), value)
    if isinstance(value, list):
        return [without_markers(entry, markers, spelled, kept) for entry in value]
    if isinstance(value, dict):
        pairs = [without_markers([name, entry], markers, spelled, kept) for name, entry in value.items()]
        return dict(pairs)
    return value


def pattern_of(markers: Iterable[str]) -> str:
    """Return a pattern of markers, and of the characters that stand for them."""
    return "|".join([*(re.escape(marker) for marker in sorted(markers, key=len, reverse=True)), "[\ue000-\ue002]"])


def marker_reader(tokenizer: PreTrainedTokenizerFast) -> Tokenizer:
    """Copy the tokenizer's backend: no padding, no truncation, markers are found in text."""
    backend = copy.deepcopy(tokenizer.backend_tokenizer)
    backend.no_padding()
    backend.no_truncation()
    return backend


def _keep(marker: str, spelled: list[str]) -> str:
    spelled.append(marker)
    return f"\ue000{len(spelled) - 1}\ue001"


def _encoded(backend: Tokenizer, text: str) -> list[int]:
    return backend.encode_batch_fast([text], add_special_tokens=False)[0].ids
