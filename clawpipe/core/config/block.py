"""The base classes of all blocks of settings."""

from __future__ import annotations

from collections.abc import Iterator
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin
from urllib.parse import urlsplit

from pydantic import AliasChoices, BaseModel, ConfigDict, Field, ValidationInfo, field_validator, model_validator

from clawpipe.core.basics.json_types import Options

Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]*$")]
Fraction = Annotated[float, Field(ge=0, le=1)]
MOST_ITEMS = 1_000_000  # that a night is planned with: they are in memory, about 2 KB each


def renamed(old: str, new: str, **field: Any) -> Any:
    """Return a field that was called `old` before. Stored records are read by that name, too; settings are refused by it."""
    return Field(validation_alias=AliasChoices(new, old), **field)


def plain_url(url: str, keys: str) -> str:
    """Return a server's URL as it is.

    Args:
        keys: the environment variables in which its key belongs, for the message.

    Raises:
        ValueError: it is none, or it holds a secret.
    """
    if "@" in url or "?" in url:  # before it is parsed: a message of the parser may hold a part of it
        raise ValueError(f"a URL in the settings holds no secret: put the key in {keys}")
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f"{url!r} is no URL: write http://HOST:PORT")
    return url


def _is_number(annotation: Any) -> bool:
    """Whether a field takes numbers and no switches."""
    kinds = set(_kinds(annotation))
    return bool(kinds & {int, float}) and bool not in kinds


def _kinds(annotation: Any) -> Iterator[Any]:
    if get_origin(annotation) is Annotated:
        yield from _kinds(get_args(annotation)[0])
    elif get_origin(annotation) in (Union, UnionType):
        yield from (kind for one in get_args(annotation) for kind in _kinds(one))
    else:
        yield annotation


class Block(BaseModel):
    """A block of settings: immutable; unknown keys, infinities, NaN, and switches in place of numbers are errors."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    @field_validator("*", mode="before")
    @classmethod
    def _is_no_switch(cls, value: Any, info: ValidationInfo) -> Any:
        """Pydantic takes true for 1, also as a learning rate; YAML says it in many words, such as `on`."""
        if isinstance(value, bool) and info.field_name and _is_number(cls.model_fields[info.field_name].annotation):
            raise ValueError(f"a number is needed, not {str(value).lower()}")
        return value

    def result_fields(self) -> frozenset[str]:
        """Return the fields that can change a result; the others are in no step's key and no night's name."""
        return frozenset(type(self).model_fields)


class Extension(Block):
    """Something that `user_code.extensions` finds by name, called with `options`. The name alone can be written for it."""

    name: str
    options: Options = Field(default_factory=dict, description="arguments, by name, of what the name stands for")

    @model_validator(mode="before")
    @classmethod
    def _from_name(cls, value: Any) -> Any:
        return {"name": value} if isinstance(value, str) else value
