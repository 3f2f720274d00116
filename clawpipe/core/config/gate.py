"""The measure of the verdict, and the settings of the gate."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from clawpipe.core.config.block import Block, Fraction

Measure = Literal["success", "preference accuracy", "tool calls", "judged", "likelihood"]


class Gate(Block):
    alpha: float = Field(
        default=0.05,
        gt=0,
        lt=1,
        description="chance of any false promotion in `nights` nights, and of a false rejection in one night",
    )
    nights: int = Field(default=30, ge=1, description="number of nights that alpha covers: a night promotes at alpha / nights")
    min_effect: float = Field(default=0.02, ge=0, le=1, description="smallest gain in success worth a promotion")
    min_items: int = Field(default=50, ge=1, description="independent held-out items (identities) below which the gate holds")
    slice_margin: Fraction = Field(default=0.1, description="success rate that a slice may lose without counting as a regression")
    promote_on_likelihood: bool = Field(
        default=False, description="whether held-out conversations that become likelier are enough for a promotion"
    )

    hold_on_signs: bool | None = Field(
        default=None,
        description="whether signs that the reward is gamed hold a promotion back; else they are warnings. null: in nights with "
        "scorers besides the verifier",
    )

    adds_up: bool = Field(
        default=False,
        description="whether the evidence of a model's nights since its last promotion, against the same incumbent, adds up, for "
        "users with few held-out items; the chance of ever promoting a model that is no better is then alpha, over any number of "
        "nights",
    )

    by_user: bool = Field(
        default=False,
        description="whether each user with enough held-out conversations is a slice: a gain for some must not cost others",
    )

    @property
    def level(self) -> float:
        """Significance level of one night's test for promotion."""
        return self.alpha / self.nights

    def result_fields(self) -> frozenset[str]:
        later = {
            "promote_on_likelihood",
            "hold_on_signs",
            "adds_up",
            "by_user",
        }  # in no key while they are off, so that keys of nights before them stay
        return super().result_fields() - {name for name in later if not getattr(self, name)}
