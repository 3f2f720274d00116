"""Scorers besides the environment's verifier."""

from __future__ import annotations

from pydantic import Field

from clawpipe.core.basics.json_types import Options
from clawpipe.core.config.block import Extension

VERIFIER = "verifier"  # the environment's, which a night's settings may weigh like the others


class JudgeSpec(Extension):
    """A scorer."""

    name: str = Field(description="path/to/file.py:NAME, or the name of one in an installed package")
    options: Options = Field(default_factory=dict, description="arguments of the scorer's constructor")


class ScorerSpec(JudgeSpec):
    """A scorer besides the environment's verifier."""

    weight: float = Field(
        default=0.0, description="weight of its score in the reward, where the verifier's is 1; 0: the score is stored only"
    )
