"""Structs for a Python that lacks msgspec, in which a user's environment may run: of the same fields and meaning, only slower."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, dataclass_transform


@dataclass_transform(frozen_default=True)
class Struct:
    """A base class whose subclasses are frozen dataclasses. It takes the class arguments of `msgspec.Struct` that clawpipe uses."""

    def __init_subclass__(cls, frozen: bool = True, gc: bool = True) -> None:
        dataclass(frozen=frozen)(cls)


def asdict(struct: Any) -> dict[str, Any]:
    """Return the fields by name; what they hold stays as it is."""
    return {field.name: getattr(struct, field.name) for field in fields(struct)}
