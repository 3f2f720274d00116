"""Generalised advantage estimation (GAE) over the trained tokens or the turns of a trajectory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from clawpipe.core.config.training import Ppo
from clawpipe.learn.training.data.samples import Sample


def gae(rewards: np.ndarray, values: np.ndarray, gamma: float, decay: float) -> np.ndarray:
    """Return advantages [N] (arXiv 1506.02438, eq. 16): A_t = d_t + gamma * decay * A_{t+1} with d_t = r_t + gamma * V_{t+1} - V_t.

    A step is a trained token, or a turn. Only trained tokens count: the last token of a turn is followed by the first token of the
    next turn, without the environment's tokens between them. The value after the last step is 0.

    Args:
        rewards: float [N], r_t, the reward of each step.
        values: float [N], V_t, the value of the tokens before each step.
        gamma: discount per step.
        decay: lambda.
    """
    errors = rewards + gamma * np.append(values[1:], 0.0) - values
    advantages = np.zeros(len(errors) + 1)
    for step in range(len(errors) - 1, -1, -1):
        advantages[step] = errors[step] + gamma * decay * advantages[step + 1]
    return advantages[:-1]


class Estimates(NamedTuple):
    """Of each trained token: the advantage [N], and the return [N], the critic's target."""

    advantages: np.ndarray
    returns: np.ndarray


def estimates(rewards: np.ndarray, values: np.ndarray, trained: np.ndarray, ppo: Ppo) -> Estimates:
    """Return the advantages of the trained tokens, and the returns, R = A + V.

    Where a turn is one step, its action is the whole answer: its reward is the sum of its tokens' rewards, its value that of the
    tokens before its first one, and all of its tokens have its advantage and its return. So gamma discounts a turn alike, however
    many tokens it has, and the critic learns at each token of a turn what the trajectory earns from that turn on.

    Args:
        rewards, values: float [N].
        trained: int [N], places of the trained tokens in the row; a turn is a run of them, since the environment's tokens or the
            next turn's header stand between two.
    """
    if ppo.steps == "token":
        advantages = gae(rewards, values, ppo.gamma, ppo.gae_lambda)
        return Estimates(advantages, advantages + values)
    turns = np.cumsum(np.diff(trained, prepend=trained[0]) > 1)  # [N], the turn of each token, from 0
    begun = values[np.unique(turns, return_index=True)[1]]
    advantages = gae(np.bincount(turns, weights=rewards), begun, ppo.gamma, ppo.gae_lambda)
    return Estimates(advantages[turns], (advantages + begun)[turns])


def with_advantages(samples: Sequence[Sample], values: Sequence[np.ndarray], ppo: Ppo) -> list[Sample]:
    """Return samples with the streams values, returns and advantages in place of rewards.

    Advantages become (A - mean) / (std + 1e-8) over all trained tokens of the run, in population form, so that the learning rate
    does not depend on the scale of rewards. Rows that are imitated count for neither, keep their advantages, and have no returns
    but the values themselves.

    Args:
        samples: rows with the stream `rewards` [N].
        values: float [N] of each sample, as `predict_values` returns them.
    """
    raw = [
        estimates(sample.streams["rewards"].astype(float), value.astype(float), sample.trained, ppo)
        for sample, value in zip(samples, values, strict=True)
    ]
    sampled = [part.advantages for sample, part in zip(samples, raw, strict=True) if not sample.imitated]
    tokens = np.concatenate(sampled) if sampled else np.zeros(1)
    mean, deviation = tokens.mean(), tokens.std()
    return [
        _with_streams(sample, values=value, returns=value)
        if sample.imitated
        else _with_streams(sample, values=value, returns=part.returns, advantages=(part.advantages - mean) / (deviation + 1e-8))
        for sample, value, part in zip(samples, values, raw, strict=True)
    ]


def _with_streams(sample: Sample, **streams: np.ndarray) -> Sample:
    kept = {name: stream for name, stream in sample.streams.items() if name != "rewards"}
    return replace(sample, streams=kept | {name: stream.astype(np.float32) for name, stream in streams.items()})
