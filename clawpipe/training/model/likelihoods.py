"""What a frozen policy says about the trained tokens of rows: their log-probs, its likeliest tokens, the log-probs of given ones.

Rows are packed as in training, so a prefix that several rows share is computed once; there are no gradients, and logits are
made at the wanted positions only, some at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from clawpipe.errors import DataError
from clawpipe.policy.forward import logits_of
from clawpipe.training.data.packing import Pack, build_pack, fill_packs, inputs_of
from clawpipe.training.data.samples import Sample
from clawpipe.training.model.scoring_head import base_of, pack_hidden

_CHUNK = 256  # positions whose logits are held at a time
_LOOKED_AT = 8  # rows, those with the most zeros
_LEAST = 8  # zeros: fewer may be chance
_UNLIKELY = -0.5  # nats a token, their mean


class Likelihoods(NamedTuple):
    """Of one row with N trained tokens, in nats at the row's temperature.

    top and top_logprobs are the K likeliest tokens of the vocabulary at each of them, best first; compared are the log-probs of
    the C tokens a position that the row asked for in its stream `top_tokens`.
    """

    logprobs: np.ndarray  # float32 [N]
    top: np.ndarray  # int32 [N, K]
    top_logprobs: np.ndarray  # float32 [N, K]
    compared: np.ndarray  # float32 [N, C]


def likelihoods(
    model: Any,
    samples: Sequence[Sample],
    pack_tokens: int,
    top_k: int = 0,
    vocabulary: int | None = None,
    on_pack: Callable[[], None] = lambda: None,
) -> list[Likelihoods]:
    """One entry a sample, in their order.

    Args:
        model: a causal language model of transformers, with or without an adapter inside of it.
        pack_tokens: tokens a pack, as in training.
        top_k: likeliest tokens a position.
        vocabulary: they are among the first so many; what a model has beyond its tokenizer's tokens is padding, of which another
            size of the same family may have less.
        on_pack: called after each pack.
    """
    found: dict[int, Likelihoods] = {}
    for pack in plan(samples, pack_tokens):
        rows = [samples[index] for index in pack]
        found |= zip(pack, _of_pack(model, rows, top_k, vocabulary), strict=True)
        on_pack()
    return [found[index] for index in range(len(samples))]


def plan(samples: Sequence[Sample], pack_tokens: int) -> list[Pack]:
    """Packs of rows in the order of their tokens, in which those that begin alike are neighbours."""
    order = sorted(range(len(samples)), key=lambda index: inputs_of(samples[index]))
    return fill_packs(samples, order, pack_tokens)


@torch.inference_mode()
def _of_pack(model: Any, rows: Sequence[Sample], top_k: int, vocabulary: int | None) -> list[Likelihoods]:
    pack = {name: stream.to(model.device) for name, stream in build_pack(rows).items()}
    hidden = pack_hidden(model, pack["input_ids"], pack["position_ids"], pack["ends"])[pack["score_index"]]
    nothing = pack["targets"].new_empty(len(hidden), 0)
    asked = (hidden, pack["targets"], pack["temperatures"], pack.get("top", nothing))
    chunks = zip(*(stream.split(_CHUNK) for stream in asked), strict=True)
    parts = [_of_chunk(model, *chunk, top_k=top_k, vocabulary=vocabulary) for chunk in chunks]
    whole = [torch.cat(stream)[pack["score"]].cpu().numpy() for stream in zip(*parts, strict=True)]
    bounds = np.cumsum([len(row.trained) for row in rows])[:-1]
    return [Likelihoods(*row) for row in zip(*(np.split(stream, bounds) for stream in whole), strict=True)]


def _of_chunk(
    model: Any, hidden: Tensor, targets: Tensor, temperatures: Tensor, compared: Tensor, *, top_k: int, vocabulary: int | None
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    logits = logits_of(model, hidden)
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32)) / temperatures[:, None]
    normaliser = logits.logsumexp(-1, keepdim=True)
    best, tokens = logits[:, :vocabulary].topk(top_k)
    chosen = (logits.gather(-1, targets[:, None]) - normaliser).squeeze(-1)
    return chosen.float(), tokens.int(), (best - normaliser).float(), (logits.gather(-1, compared) - normaliser).float()


def require_likely_zeros(model: Any, samples: Sequence[Sample], pack_tokens: int) -> None:
    """Raise if recorded log-probs of exactly 0 belong to tokens that `model`, the policy as training begins, finds unlikely.

    Raises:
        DataError: it names the row's group and both figures.
    """
    suspects = sorted(samples, key=lambda sample: -_zeros(sample).sum())[:_LOOKED_AT]
    if sum(_zeros(sample).sum() for sample in suspects) < _LEAST:
        return
    model.eval()
    said = likelihoods(base_of(model), suspects, pack_tokens)
    own = [answer.logprobs[_zeros(row)] for answer, row in zip(said, suspects, strict=True)]
    if (mean := float(np.concatenate(own).mean())) < _UNLIKELY:
        worst = min(range(len(own)), key=lambda index: own[index].sum())
        raise DataError(
            f"{len(own[worst])} of its {len(suspects[worst].trained)} log-probs are recorded as exactly 0, and the policy gives "
            f"such tokens {mean:.2f} nats on average: zeros were filled in",
            f"a row of group {suspects[worst].group}",
            "leave out the log-probs, so that they are recomputed, or use train.method: sft",
        )


def _zeros(sample: Sample) -> np.ndarray:
    """bool [N]"""
    return sample.streams["behaviour"] == 0
