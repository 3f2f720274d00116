"""Generalised advantage estimation (GAE) over the trained tokens of a trajectory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from clawpipe.config.training import Ppo
from clawpipe.training.data.samples import Sample


def gae(rewards: np.ndarray, values: np.ndarray, gamma: float, decay: float) -> np.ndarray:
    """Return advantages [N] (arXiv 1506.02438, eq. 16): A_t = d_t + gamma * decay * A_{t+1} with d_t = r_t + gamma * V_{t+1} - V_t.

    Only trained tokens are steps: the last token of a turn is followed by the first token of the next turn, without the
    environment's tokens between them. The value after the last token is 0.

    Args:
        rewards: float [N], r_t, the reward after each token.
        values: float [N], V_t, the value of the tokens before each token.
        gamma: discount per token.
        decay: lambda.
    """
    errors = rewards + gamma * np.append(values[1:], 0.0) - values
    advantages = np.zeros(len(errors) + 1)
    for token in range(len(errors) - 1, -1, -1):
        advantages[token] = errors[token] + gamma * decay * advantages[token + 1]
    return advantages[:-1]


def with_advantages(samples: Sequence[Sample], values: Sequence[np.ndarray], ppo: Ppo) -> list[Sample]:
    """Return samples with the streams values, returns and advantages in place of rewards.

    Returns, the critic's targets, are advantages plus values: R = A + V. Then advantages become (A - mean) / (std + 1e-8) over all
    trained tokens of the run, in population form, so that the learning rate does not depend on the scale of rewards. Rows that are
    imitated count for neither, keep their advantages, and have no returns but the values themselves.

    Args:
        samples: rows with the stream `rewards` [N].
        values: float [N] of each sample, as `predict_values` returns them.
    """
    raw = [
        gae(sample.streams["rewards"].astype(float), value.astype(float), ppo.gamma, ppo.gae_lambda)
        for sample, value in zip(samples, values, strict=True)
    ]
    sampled = [part for sample, part in zip(samples, raw, strict=True) if not sample.imitated]
    tokens = np.concatenate(sampled) if sampled else np.zeros(1)
    mean, deviation = tokens.mean(), tokens.std()
    return [
        _with_streams(sample, values=value, returns=value)
        if sample.imitated
        else _with_streams(sample, values=value, returns=part + value, advantages=(part - mean) / (deviation + 1e-8))
        for sample, value, part in zip(samples, values, raw, strict=True)
    ]


def _with_streams(sample: Sample, **streams: np.ndarray) -> Sample:
    kept = {name: stream for name, stream in sample.streams.items() if name != "rewards"}
    return replace(sample, streams=kept | {name: stream.astype(np.float32) for name, stream in streams.items()})
