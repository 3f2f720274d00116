"""Bounds on how far the log-probs of engine and trainer may be from the model's own forward. Imports no heavy library."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field

from clawpipe.core.config.quantization import Quantization
from clawpipe.errors import DataError

Part = Literal["engine", "trainer", "export"]
OTHER_MODEL = "use another base model; `clawpipe doctor --model NAME` tells whether one can be used"
_PROCESSED = (
    "start vLLM with --logprobs-mode processed_logprobs, or SGLang without SGLANG_RETURN_ORIGINAL_LOGPROB in its environment, "
    "which gives those at the sampling temperature"
)
OTHER_SERVER = "check which base model and adapter the server holds, its --dtype, and rollouts.engine.dtype"
OTHER_SERVICE = "name in train.backend.model the model that model.base is"


class Bound(NamedTuple):
    """Largest allowed distance of log-probs from the model's forward, in nats per token: for one token, and on average."""

    largest: float
    mean: float


_BOUNDS = {
    # Sums in another order. Measured with SmolLM2-135M and tiny models of 30 families: at most 8e-5.
    "float32": Bound(1e-3, 1e-3),
    # 11 and 8 bits per sum. SmolLM2-135M: at most 0.02 and 0.21, on average 0.0024 and 0.026; the bounds leave room for other
    # sizes. A family whose logits or masks are wrong is off by 0.3 and more on average. vLLM 0.32 on a CPU: at most 3.5e-5 in
    # float32 (without an adapter); in bfloat16 at most 0.54, on average 0.035 to 0.066 (with and without, at a temperature of 0.5).
    "float16": Bound(0.1, 0.01),
    "bfloat16": Bound(1.0, 0.08),
}
# Quantized weights (nf4, int8-torchao, fp8, int4) are the same numbers in every pass: measured, they add no distance.
# LLM.int8 rounds activations as well, where a last-bit difference becomes a whole step: at most 1.02, on average 0.10.
_INT8 = Bound(2.0, 0.25)


class Agreement(BaseModel):
    """Distance of log-probs from the model's own forward, in nats: the largest and the mean over `tokens` tokens."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    part: Part = Field(description="where the log-probs come from: engine, trainer or exported weights")
    layout: Literal["packed", "apart"]
    largest: float
    mean: float
    tokens: int
    kind: Literal["tempered", "raw"] = Field(default="tempered", description="raw: they are those at temperature 1")

    def __str__(self) -> str:
        return f"rows {self.layout}, {self.largest:.2g} nats off at most, {self.mean:.2g} on average"

    def within(self, bound: Bound) -> bool:
        return self.largest <= bound.largest and self.mean <= bound.mean


class SampledRow(BaseModel):
    """A row that an engine sampled at temperature 1: token ids, and the log-probs of the sampled ones by their places."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    ids: tuple[int, ...]
    logprobs: dict[int, float]


class Place(BaseModel):
    """A history, and the log-probs of the tokens that are likeliest after it, by the model's own forward at a temperature."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    ids: tuple[int, ...]
    logprobs: dict[int, float]
    temperature: float


class EngineAgreement(Agreement):
    """What the check of an engine found.

    Attributes:
        sampled: rows for the trainer's check, where no weights are here to compare it with.
        places: by which servers are known that come later.
        where: URL of the server whose figures these are, of several the one that is farthest off.
    """

    sampled: tuple[SampledRow, ...] = ()
    places: tuple[Place, ...] = ()
    where: str = ""

    @property
    def figures(self) -> Agreement:
        return Agreement.model_validate(self.model_dump(include=set(Agreement.model_fields)))


def bound_of(dtype: str, quantization: Quantization) -> Bound:
    """Return the bound for a dtype and quantization."""
    return _INT8 if quantization == "int8" else _BOUNDS[dtype]


def coarser(first: str, second: str) -> str:
    """Return the dtype with fewer bits, of two."""
    return max(first, second, key=lambda dtype: _BOUNDS[dtype].largest)


def require_agreement(found: Agreement, bound: Bound, where: str, fix: str = OTHER_MODEL) -> None:
    """Raise if log-probs are too far from the model's own forward.

    Args:
        fix: what to do, unless they are raw ones.

    Raises:
        DataError: the distance is above `bound`.
    """
    if not found.within(bound):
        raw = ", and are raw ones, from before the temperature" if found.kind == "raw" else ""
        raise DataError(
            f"the {found.part}'s log-probs are {found.largest:.3g} nats off the model's own forward, {found.mean:.2g} on average"
            f"{raw} (over {found.tokens} tokens, rows {found.layout}; allowed {bound.largest:g} and {bound.mean:g})",
            where,
            _PROCESSED if raw else fix,
        )


def agreement(part: Part, layout: Literal["packed", "apart"], found: Sequence[float], expected: Sequence[float]) -> Agreement:
    """Compare log-probs `found` with those of the model's forward; a value that is not finite counts as infinitely far."""
    distances = [abs(value - reference) for value, reference in zip(found, expected, strict=True)]
    distances = [distance if math.isfinite(distance) else math.inf for distance in distances]
    mean = math.fsum(distances) / len(distances)
    return Agreement(part=part, layout=layout, largest=max(distances), mean=mean, tokens=len(distances))
