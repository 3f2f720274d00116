"""Questions about `train` as a whole, which depend on its method and its settings. Imports no heavy library."""

from __future__ import annotations

from clawpipe.core.config.model import FLOAT16
from clawpipe.core.config.training import Loss, Train
from clawpipe.errors import ConfigError


def needs(train: Train) -> frozenset[str]:
    """Return which policies' log-probs of the trained tokens are needed besides the recorded ones: reference, proximal, teacher."""
    wanted = {
        "reference": bool(train.spec.compares_with_start or train.loss.kl_coef),
        "proximal": train.spec.uses_ratios and (train.loss.tis_cap is not None or train.loss.icepop is not None),
        "teacher": weights_of(train)[1] > 0,
    }
    return frozenset(name for name, needed in wanted.items() if needed)


def loss_of(train: Train) -> Loss:
    """Return the policy loss of `train.method`: as configured, or plain likelihood."""
    return train.loss.model_copy(update={"objective": "sft"}) if train.spec.likelihood else train.loss


def weights_of(train: Train) -> tuple[float, float]:
    """Return (w_rl, w_opd): the weights of the reward's terms and of the hinted teacher's."""
    return train.spec.weights or (train.combine.w_rl, train.combine.w_opd)


def require_trainable(dtype: str) -> None:
    """Raise if a policy's dtype cannot be trained, as that of an older night's champion may be.

    Raises:
        ConfigError: the dtype is float16.
    """
    if dtype == "float16":
        raise ConfigError(FLOAT16, "model.dtype", "set it to bfloat16, which takes as much memory, or to float32")


def require_token_scores(train: Train, there: bool) -> None:
    """Raise if `train` needs log-probs of other policies and there are none.

    Raises:
        ConfigError: it names the setting that needs them.
    """
    settings = {"reference": "train.loss.kl_coef", "proximal": "train.loss.tis_cap", "teacher": "train.method"}
    if not there and (missing := sorted(needs(train))):
        where = "train.method" if train.spec.compares_with_start else settings[missing[0]]
        raise ConfigError(
            f"{where} needs log-probs of the {missing[0]} policy, and no token scores are given", where, "annotate the rows first"
        )
