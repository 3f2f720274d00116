"""What every block of settings is made of."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AliasChoices, BaseModel, ConfigDict, Field

Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]*$")]
Fraction = Annotated[float, Field(ge=0, le=1)]


def renamed(old: str, new: str, **field: Any) -> Any:
    """A field that was called `old` before: configs and stored records may still name it so."""
    return Field(validation_alias=AliasChoices(new, old), **field)


class Block(BaseModel):
    """A block of settings: immutable; an unknown key is an error, and so is a number that is infinite or none."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    def result_fields(self) -> frozenset[str]:
        """Fields that can change a result, as these settings stand; the others are in no step's key and no night's name."""
        return frozenset(type(self).model_fields)
