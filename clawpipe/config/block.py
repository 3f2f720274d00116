"""What every block of settings is made of."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]*$")]
Fraction = Annotated[float, Field(ge=0, le=1)]


class Block(BaseModel):
    """A block of settings: immutable, and an unknown key is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    def result_fields(self) -> frozenset[str]:
        """Fields that can change a result, as these settings stand; the others are in no step's key and no night's name."""
        return frozenset(type(self).model_fields)
