"""What each training method asks of the one policy loss."""

from __future__ import annotations

from clawpipe.config.training import Loss, Train
from clawpipe.errors import ConfigError


def loss_of(train: Train) -> Loss:
    """The loss that `train.method` stands for: grpo takes it as configured, sft makes the objective likelihood.

    Raises:
        ConfigError: a term needs log-probs that samples do not carry.
    """
    for name in ("kl_coef", "tis_cap", "icepop"):
        if getattr(train.loss, name):
            raise ConfigError(
                f"{name} needs log-probs of a second policy, which samples do not carry", f"train.loss.{name}", "leave it out"
            )
    return train.loss.model_copy(update={"objective": "sft"}) if train.method == "sft" else train.loss
