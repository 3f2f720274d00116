"""Redact the texts in JSON values, whatever their form."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count, islice
from typing import Any

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.data.privacy.redact import Redactor


@dataclass(frozen=True)
class RedactedValues:
    """Redacted values in the order given; `changed` says of each whether it held a secret, `found` counts them by rule."""

    values: list[Any]
    changed: list[bool]
    found: Counter[str]


def redact_values(redact: Redactor, values: Sequence[Any]) -> RedactedValues:
    """Redact all texts in JSON values, including field names."""
    texts = [list(_texts(value)) for value in values]
    result = redact.texts([text for of_value in texts for text in of_value])
    left, changed = iter(result.texts), iter(result.changed)
    were_changed = [sum(islice(changed, len(of_value))) > 0 for of_value in texts]
    return RedactedValues([_with_texts(value, left) for value in values], were_changed, result.found)


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for name, part in value.items():
            yield from (name, *_texts(part))
    elif isinstance(value, list | tuple) and not _is_numeric(value):
        for part in value:
            yield from _texts(part)


def _with_texts(value: Any, texts: Iterator[str]) -> Any:
    """Replace the texts of `value` by `texts`, in the order of `_texts`."""
    if isinstance(value, str):
        return next(texts)
    if isinstance(value, dict):
        return distinct([(next(texts), _with_texts(part, texts)) for part in value.values()])
    if isinstance(value, list | tuple) and not _is_numeric(value):
        return [_with_texts(part, texts) for part in value]
    return value


def distinct(pairs: list[tuple[str, Any]]) -> JsonObject:
    """Return the pairs as an object, with a number behind names that redaction has made equal."""
    found: JsonObject = {}
    for name, value in pairs:
        number = count(2)
        unused = name
        while unused in found:
            unused = f"{name} ({next(number)})"
        found[unused] = value
    return found


def _is_numeric(value: Sequence[Any]) -> bool:
    """Whether a list holds numbers only; such lists may be long, and hold no text."""
    return (
        bool(value)
        and all(isinstance(part, int | float) for part in (value[0], value[-1]))
        and not any(isinstance(part, str | list | dict) for part in value)
    )
