"""Likelihoods under a frozen policy: log-probs of a row's trained tokens, the likeliest tokens, and log-probs of given tokens.

Rows are packed as in training, so that a prefix shared by several rows is computed once. There are no gradients, and
logits are computed only at the wanted positions, in chunks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from heapq import nsmallest
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from clawpipe.errors import DataError
from clawpipe.learn.training.data.packing import Pack, build_pack, fill_packs, inputs_of
from clawpipe.learn.training.data.samples import Sample
from clawpipe.learn.training.model.scoring_head import pack_hidden
from clawpipe.model.policy.forward import logits_of

_CHUNK = 256  # positions per chunk of logits
_LOOKED_AT = 8  # rows to check: the ones with the most zeros
_LEAST = 8  # with fewer zeros, rounding may explain them
_UNLIKELY = -0.5  # mean log-prob, nats per token


class Likelihoods(NamedTuple):
    """Likelihoods of one row with N trained tokens, in nats at the row's temperature.

    top and top_logprobs are the K likeliest tokens at each position, best first; compared holds the log-probs of
    the C tokens per position that the row lists in its stream `top_tokens`.
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
    """Return the likelihoods of each sample, in order.

    Args:
        model: a causal language model of transformers, with or without an adapter.
        pack_tokens: tokens per pack, as in training.
        top_k: number of likeliest tokens per position.
        vocabulary: number of token ids among which the likeliest are sought; ids beyond the tokenizer's are padding, and models of
        one family differ in how many they have.
        on_pack: called after each pack.
    """
    found: dict[int, Likelihoods] = {}
    for pack in plan(samples, pack_tokens):
        rows = [samples[index] for index in pack]
        found |= zip(pack, _of_pack(model, rows, top_k, vocabulary), strict=True)
        on_pack()
    return [found[index] for index in range(len(samples))]


def plan(samples: Sequence[Sample], pack_tokens: int) -> list[Pack]:
    """Pack the rows in sorted order of their tokens, so that rows with a common prefix are neighbours."""
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


def require_likely_zeros(samples: Sequence[Sample], score: Callable[[Sequence[Sample]], list[np.ndarray]]) -> None:
    """Raise if recorded log-probs of exactly 0 belong to tokens that the policy at the start of training finds unlikely.

    Args:
        score: computes the log-probs of rows' trained tokens under that policy.

    Raises:
        DataError: it names the row's group and both numbers.
    """
    suspects = nsmallest(_LOOKED_AT, (row for row in samples if not row.imitated), key=lambda row: -_zeros(row).sum())
    if sum(_zeros(sample).sum() for sample in suspects) < _LEAST:
        return
    found = score(suspects)
    recomputed = [logprobs[_zeros(row)] for logprobs, row in zip(found, suspects, strict=True)]
    if (mean := float(np.concatenate(recomputed).mean())) < _UNLIKELY:
        worst = min(range(len(recomputed)), key=lambda index: recomputed[index].sum())
        raise DataError(
            f"{len(recomputed[worst])} of its {len(suspects[worst].trained)} log-probs are recorded as exactly 0, and the policy "
            f"gives such tokens {mean:.2f} nats on average: zeros were filled in",
            f"a row of group {suspects[worst].group}",
            "leave out the log-probs, so that they are recomputed, or use train.method: sft",
        )


def _zeros(sample: Sample) -> np.ndarray:
    """bool [N]: whether the recorded log-prob of a trained token is exactly 0."""
    return sample.streams["behaviour"] == 0
