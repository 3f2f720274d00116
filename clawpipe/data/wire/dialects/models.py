"""Lists of models in Anthropic's form, for clients that say with a header that they speak its interface."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, TypeGuard

from clawpipe.core.basics.json_types import JsonObject

VERSION_HEADER = "anthropic-version"  # which Anthropic's clients send with every request
_CONTEXTS = ("max_model_len", "context_length", "max_input_tokens")  # what vLLM, `clawpipe serve` and Anthropic call the window


def in_form(body: JsonObject, headers: Mapping[str, str]) -> JsonObject:
    """Return what OpenAI's interface says of one model or of many, in the form that the client's headers ask for."""
    if VERSION_HEADER not in headers or body.get("type") == "model" or "has_more" in body:
        return body
    listed = body.get("data")
    if not isinstance(listed, list):
        return _card(body) if _is_card(body) else body
    cards = [_card(one) for one in listed if _is_card(one)]
    ends = {"first_id": cards[0]["id"], "last_id": cards[-1]["id"]} if cards else {"first_id": None, "last_id": None}
    return {"data": cards, "has_more": False, **ends}


def _is_card(given: Any) -> TypeGuard[JsonObject]:
    return isinstance(given, dict) and isinstance(given.get("id"), str)


def window_of(card: JsonObject) -> int | None:
    """Return how many tokens a model's window has; None if its card does not say."""
    said = (card.get(name) for name in _CONTEXTS)
    return next((one for one in said if type(one) is int and one > 0), None)


def _card(card: JsonObject) -> JsonObject:
    context = window_of(card)
    of_service = {"capabilities": None, "deprecated_at": None, "retires_at": None, "line": None, "max_tokens": context}
    named = {"type": "model", "id": card["id"], "display_name": card["id"], "created_at": _time(card.get("created"))}
    return {**named, "lifecycle": "active", "max_input_tokens": context, **of_service}


def _time(created: Any) -> str:
    try:
        return datetime.fromtimestamp(created, UTC).isoformat()
    except (TypeError, ValueError, OverflowError, OSError):
        return datetime.fromtimestamp(0, UTC).isoformat()
