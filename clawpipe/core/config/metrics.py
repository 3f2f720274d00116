"""Where figures of nights go for Prometheus, and what a night costs."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field, field_validator

from clawpipe.core.config.block import Block


class Prices(Block):
    """A price list. What has no price is free."""

    currency: str = Field(default="USD", pattern=r"^[A-Z]{3}$", description="ISO 4217 code, e.g. EUR")
    machine_hour: float = Field(default=0.0, ge=0, description="price of an hour of the machine, for each stage's wall time")
    accelerator_hour: float = Field(default=0.0, ge=0, description="price of an hour of one accelerator, while a night occupies it")
    million_tokens: float = Field(
        default=0.0, ge=0, description="price of a million sampled tokens of rollouts, where an endpoint bills them"
    )


class Metrics(Block):
    """Figures of nights for Prometheus; they change no result."""

    textfile: str | None = Field(
        default=None,
        description="absolute path of a file for node_exporter's textfile collector, .prom, outside the home; null: none",
    )
    prices: Prices | None = Field(default=None, description="price list of clawpipe_night_stage_cost; null: no such figure")

    def result_fields(self) -> frozenset[str]:
        return frozenset()

    @field_validator("textfile")
    @classmethod
    def _is_collected(cls, path: str | None) -> str | None:
        if path is not None and not (Path(path).is_absolute() and path.endswith(".prom")):
            raise ValueError("give an absolute path that ends in .prom: node_exporter reads no other file")
        return path
