"""The learning rate as a function of the base's width, of what is trained, and of the method; used where none is set.

    rate = rate of the method (576 / width) ** p (32 / gain)        times 0.1 where all weights are trained, which have no gain

AdamW moves each weight by about the rate, whatever the gradient's size. So the change of a layer's output grows with the number of
weights that add up in it, and the rate has to fall with the width: as 1 / width for whole matrices (muP, Yang et al. 2022,
arXiv 2203.03466), and by less for LoRA, whose B begins at 0 and sees the r outputs of A, whose size is the same at each width
(Hayou et al. 2024, arXiv 2402.12354). The same argument gives the gain: an adapter's scale, alpha / rank or with rslora
alpha / sqrt(rank), times the rank. It agrees with Schulman et al. 2025 ("LoRA without regret"), who found the best rate of LoRA
independent of the rank, and ten times that of all weights.

The exponents are those that benchmarks/rates.py finds on random bases of widths 64 to 512. The methods' rates are those of nights
of SmolLM2-135M, whose width is 576 (docs/benchmarks.md). Beyond that nothing is measured.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from clawpipe.core.config.training import Lora, Train

WIDTH, GAIN = 576, 32.0  # of the base and adapter with which the methods' own rates were found: SmolLM2-135M, alpha 32
EXPONENT = {"lora": 0.43, "full": 0.92}
FULL = 0.1  # training all weights takes a tenth of an adapter's rate at that width
_LARGE, _SMALL = 10.0, 0.01  # a set rate so many times the function's, or more or less of it, is pointed out


@dataclass(frozen=True)
class Rate:
    """A night's learning rate.

    Attributes:
        value: the rate that the night takes.
        function: what the function gives; None where the base's width is not known.
        width: the base's hidden size.
    """

    value: float | None
    function: float | None
    width: int | None

    @property
    def is_measured(self) -> bool:
        """Whether bases as wide as this one were tried."""
        return self.width is not None and self.width <= WIDTH

    @property
    def is_large(self) -> bool:
        return self.value is not None and self.function is not None and round(self.value / self.function, 6) >= _LARGE

    @property
    def is_small(self) -> bool:
        return self.value is not None and self.function is not None and round(self.value / self.function, 6) <= _SMALL


def gain(lora: Lora) -> float:
    """Return how much of A's outputs an adapter adds to a layer's output: its scale times its rank."""
    return lora.alpha * math.sqrt(lora.rank) if lora.variant == "rslora" else float(lora.alpha)


def rate_for(train: Train, width: int) -> float:
    """Return the function's learning rate for a base of this hidden size, to two digits, whatever rate is set."""
    rate = train.spec.learning_rate * (WIDTH / width) ** EXPONENT[train.adapter]
    return float(f"{rate * (FULL if train.adapter == 'full' else GAIN / gain(train.lora)):.1e}")


def rate_of(train: Train, width: int) -> float:
    """Return the learning rate to train with: the one that is set, else the function's."""
    return train.learning_rate or rate_for(train, width)


def planned_rate(train: Train, width: int | None) -> Rate:
    """Return the rate of a night whose base has this width; None: it is not known before the base is here."""
    function = rate_for(train, width) if width else None
    return Rate(train.learning_rate or function, function, width)
