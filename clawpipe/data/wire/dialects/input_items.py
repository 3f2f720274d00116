"""What a response was asked with, as `/v1/responses/ID/input_items` lists it.

{"object": "list", "data": [items], "first_id", "last_id", "has_more"}
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import parse_qs

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.data.wire.dialects.fields import WrongRequestError

_MOST, _USUAL = 100, 20  # items of a page
_PREFIXES = {"message": "msg", "function_call": "fc", "function_call_output": "fco", "reasoning": "rs"}


def listed_items(given: Any) -> list[JsonObject]:
    """Return the items of a request's `input`, each with a type, a status and an id of its own."""
    items = [{"role": "user", "content": given}] if isinstance(given, str) else given if isinstance(given, list) else []
    return [_listed(item) for item in items if isinstance(item, dict)]


def _listed(item: JsonObject) -> JsonObject:
    kind = item.get("type") or "message"
    named = {"id": f"{_PREFIXES.get(kind, 'item')}_{uuid.uuid4().hex}", "status": "completed"} | item | {"type": kind}
    text = item.get("content")
    if kind != "message" or not isinstance(text, str):
        return named
    part = {"type": "output_text", "annotations": []} if item.get("role") == "assistant" else {"type": "input_text"}
    return named | {"content": [part | {"text": text}]}


def page_of(items: Sequence[JsonObject], query: str) -> JsonObject:
    """Return the page of items that the query of an address asks for: the last ones first, unless `order` is `asc`.

    Raises:
        WrongRequestError: `limit` is no number from 1 to 100, or `order` neither `asc` nor `desc`.
    """
    asked = {name: values[-1] for name, values in parse_qs(query.removeprefix("?")).items()}
    limit, order = _limit(asked), asked.get("order", "desc")
    if order not in ("asc", "desc"):
        raise WrongRequestError("neither asc nor desc", "order")
    ordered = list(items if order == "asc" else reversed(items))
    after = next((place + 1 for place, item in enumerate(ordered) if item.get("id") == asked.get("after")), 0)
    shown = ordered[after : after + limit]
    ends = {"first_id": shown[0].get("id"), "last_id": shown[-1].get("id")} if shown else {"first_id": None, "last_id": None}
    return {"object": "list", "data": shown, **ends, "has_more": len(ordered) > after + limit}


def _limit(asked: Mapping[str, str]) -> int:
    given = asked.get("limit", str(_USUAL))
    if not (given.isascii() and given.isdigit() and 1 <= int(given[:4]) <= _MOST):
        raise WrongRequestError(f"no number from 1 to {_MOST}", "limit")
    return int(given)
