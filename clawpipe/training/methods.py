"""What `train` as a whole asks for: its method's wants and its settings together. Loads no heavy library."""

from __future__ import annotations

from clawpipe.config.night import FLOAT16
from clawpipe.config.training import Loss, Train
from clawpipe.errors import ConfigError

FULL_RATE = 0.1  # every weight moves, not a few directions of low rank: a tenth of an adapter's rate


def needs(train: Train) -> frozenset[str]:
    """Whose log-probs of the trained tokens, beside the recorded ones, must be known: reference, proximal, teacher."""
    wanted = {
        "reference": bool(train.kind.pairs or train.loss.kl_coef),
        "proximal": not train.kind.pairs and (train.loss.tis_cap is not None or train.loss.icepop is not None),
        "teacher": weights_of(train)[1] > 0,
    }
    return frozenset(name for name, needed in wanted.items() if needed)


def loss_of(train: Train) -> Loss:
    """The policy loss that `train.method` stands for: as configured, or plain likelihood."""
    return train.loss.model_copy(update={"objective": "sft"}) if train.kind.likelihood else train.loss


def weights_of(train: Train) -> tuple[float, float]:
    """(w_rl, w_opd): factors of the reward's terms and of the hinted teacher's."""
    return train.kind.weights or (train.combine.w_rl, train.combine.w_opd)


def rate_of(train: Train) -> float:
    """The learning rate that applies: a method's own default is for adapters."""
    return train.rate * FULL_RATE if train.learning_rate is None and train.adapter == "full" else train.rate


def require_trainable(dtype: str) -> None:
    """Raise where a policy's dtype is none to train in, as that of a champion of an older night may be.

    Raises:
        ConfigError: it is float16.
    """
    if dtype == "float16":
        raise ConfigError(FLOAT16, "model.dtype", "set it to bfloat16, which takes as much memory, or to float32")


def require_token_scores(train: Train, there: bool) -> None:
    """Raise where `train` needs log-probs of other policies and there are none.

    Raises:
        ConfigError: it names the setting that asks for them.
    """
    settings = {"reference": "train.loss.kl_coef", "proximal": "train.loss.tis_cap", "teacher": "train.method"}
    if not there and (missing := sorted(needs(train))):
        where = "train.method" if train.kind.pairs else settings[missing[0]]
        raise ConfigError(
            f"{where} needs log-probs of the {missing[0]} policy, and no token scores are given", where, "annotate the rows first"
        )
