"""What the engine and the trainer say about tokens, against the model's own forward: the figures, and how large they may be."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from pydantic import BaseModel, ConfigDict, Field

from clawpipe.config.quantization import Quantization
from clawpipe.errors import DataError
from clawpipe.policy.forward import Layout, as_loaded

_NEAR = 256  # tokens; a sliding window up to here is reached on purpose
TURN = 6  # tokens that a policy writes in a turn


class Probe(NamedTuple):
    """Conversations to compare on: ragged prompts that begin alike, and what the environment answers to each ("nothing": no more).

    Two prompts are equal, one adds a single token to the common beginning.
    """

    prompts: list[list[int]]
    replies: list[list[int]]


class Agreement(BaseModel):
    """How far recorded log-probs were from the model's own, in nats: the largest and the mean distance over `tokens` tokens."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    part: str = Field(description="whose log-probs: engine or trainer")
    layout: Layout
    largest: float
    mean: float
    tokens: int


def probe_of(ids: Sequence[int], window: int | None = None) -> Probe:
    """A probe cut from `ids`, read round and round; where a window of `window` tokens is near, its prompts reach beyond it."""
    common = window + 8 if window is not None and window <= _NEAR else 24
    stream = (ids * math.ceil((common + 200) / len(ids)))[: common + 200]
    start, tail = list(stream[:common]), stream[common:]
    own = [tail[:9], tail[:9], tail[20:45], tail[50:51]]
    return Probe([start + part for part in own], [tail[60:63], tail[70:79], tail[90:101], []])


def window_of(model: Any) -> int | None:
    """Tokens that a layer with a sliding window sees; None without such layers."""
    config = model.config.get_text_config()
    return getattr(config, "sliding_window", None)


def own_logprobs(model: Any, rows: Sequence[Sequence[int]]) -> list[list[float]]:
    """Natural log-probs of each row's tokens from its second on, by the model's plain forward, one row at a time."""
    with as_loaded(model):
        return [_own(model, row) for row in rows]


def _own(model: Any, row: Sequence[int]) -> list[float]:
    ids = torch.tensor([row], device=model.device)
    logprobs = model(input_ids=ids, use_cache=False).logits[0, :-1].float().log_softmax(-1)
    return logprobs.gather(-1, ids[0, 1:, None])[:, 0].tolist()


def agreement(part: str, layout: Layout, found: Sequence[float], expected: Sequence[float]) -> Agreement:
    """The figures of log-probs `found` against the model's own; a number that is none counts as infinitely far."""
    distances = [abs(one - other) for one, other in zip(found, expected, strict=True)]
    distances = [distance if math.isfinite(distance) else math.inf for distance in distances]
    mean = math.fsum(distances) / len(distances)
    return Agreement(part=part, layout=layout, largest=max(distances), mean=mean, tokens=len(distances))
