"""The objectives: the losses on trained tokens that `train.loss.objective` can name."""

from __future__ import annotations

from clawpipe.config.training import OBJECTIVES
from clawpipe.extensions import ExtensionPoint

LOSSES = ExtensionPoint("loss", "train.loss.objective", {name: f"clawpipe.training.losses.policy:{name}" for name in OBJECTIVES})
