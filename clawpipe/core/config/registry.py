"""The registered model that a night is for: one for all, or one for each user."""

from __future__ import annotations

import hashlib
from typing import Literal

from pydantic import Field

from clawpipe.core.config.block import Block, Name

_DIGITS = 16  # of a digest: nobody meets another user's by chance


class Registry(Block):
    model_name: Name = Field(default="clawpipe-agent", description="registered model that the night is for")
    per: Literal["user"] | None = Field(
        default=None,
        description="user: a night for each user who said something new, for a model of that user alone, which has to beat the "
        "shared one; null: one model for all",
    )
    shared: Name | None = Field(
        default=None, description="model that serves as long as model_name has no version, and that its first one has to beat"
    )

    @property
    def is_of_one_user(self) -> bool:
        """Whether all conversations of the night are of one user."""
        return self.shared is not None

    def result_fields(self) -> frozenset[str]:
        later = {"per", "shared"}  # in no key while they are off, so that keys of nights before them stay
        return super().result_fields() - {name for name in later if not getattr(self, name)}


def user_digest(user: str) -> str:
    """Return what stands for a user where nobody needs to read the name."""
    return hashlib.sha256(user.encode(errors="surrogateescape")).hexdigest()[:_DIGITS]


def model_of_user(name: str, digest: str) -> str:
    """Return the name of the model of one user, given by the digest, beside the shared model of this name."""
    return f"{name}-user-{digest}"
