"""Read fields of a request that a client wrote: what is wrong is named, and nothing else is raised."""

from __future__ import annotations

from typing import Any

from clawpipe.core.basics.json_types import JsonObject


class WrongRequestError(ValueError):
    """A request that breaks the rules of its dialect.

    Args:
        what: what is wrong.
        where: the field.
    """

    def __init__(self, what: str, where: str) -> None:
        super().__init__(f"{where}: {what}")
        self.where = where


class UntranslatableError(ValueError):
    """A request that no chat completion can express. `args[0]` says why, in one of a few wordings."""


class UnknownResponseError(UntranslatableError):
    """A request that goes on with a response that is not kept here."""


def text_of(value: Any, where: str) -> str:
    if not isinstance(value, str):
        raise WrongRequestError("not a text", where)
    return value


def list_of(value: Any, where: str) -> list[Any]:
    if not isinstance(value, list):
        raise WrongRequestError("not a list", where)
    return value


def object_of(value: Any, where: str) -> JsonObject:
    if not isinstance(value, dict):
        raise WrongRequestError("not an object", where)
    return value


def limit_of(value: Any, where: str) -> int:
    """Return how many tokens an answer may have; an answer of none cannot be translated."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise WrongRequestError("not a number of tokens", where)
    if not value:
        raise UntranslatableError("an answer of no tokens")
    return value


def without(body: JsonObject, names: tuple[str, ...]) -> JsonObject:
    """Return the fields of an object that are not null, but for some."""
    return {name: value for name, value in body.items() if name not in names and value is not None}


def streaming(body: JsonObject) -> JsonObject:
    """Return the options of a streamed chat that ask for its usage, which the dialects always say."""
    return {"stream_options": {"include_usage": True}} if body.get("stream") is True else {}
