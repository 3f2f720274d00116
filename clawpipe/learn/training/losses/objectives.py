"""The objectives: the losses on trained tokens that `train.loss.objective` can name."""

from __future__ import annotations

from clawpipe.core.config.training import OBJECTIVES
from clawpipe.core.user_code.extensions import ExtensionPoint

LOSSES = ExtensionPoint(
    "loss", "train.loss.objective", {name: f"clawpipe.learn.training.losses.policy:{name}" for name in OBJECTIVES}
)
