"""Log-probs of chosen tokens only, computed by the model's forward.

The base model's `forward` is replaced in place and the *wrapped* model is called, so that the hooks of PEFT and of
distributed wrappers run; a direct call of the decoder would silently skip a gradient all-reduce.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from clawpipe.learn.training.model.router import balance_coefficient, balance_loss, router_logits
from clawpipe.learn.training.model.scores import Scores
from clawpipe.learn.training.model.tree_attention import packs, require_steady, tree_of
from clawpipe.model.policy.forward import hidden_states, logits_of

_CHUNK = 256  # scores per chunk: logits of a whole pack would take more memory than everything else


def install_scoring_head(model: Any) -> None:
    """Make `model` return `Scores` when it is called with `score=(score_index, targets, temperatures, top)`.

    The first three are [U], `top` is [U, K] or None. `ends` [T] decides which tokens see which. A value head is a module of the
    base model called `value_head`.
    """
    base = base_of(model)
    original = base.forward
    if getattr(original, "gives_scores", False):
        return

    @functools.wraps(original)
    def forward(*args: Any, score: tuple[Tensor, Tensor, Tensor, Tensor | None] | None = None, **kwargs: Any) -> Any:
        if score is None:
            return original(*args, **kwargs)
        index, targets, temperatures, top = score
        with router_logits(base) as routed:
            hidden = pack_hidden(base, kwargs["input_ids"], kwargs["position_ids"], kwargs["ends"])[index]
        learns_entropy = getattr(base, "learns_entropy", False)
        scores = _score(base, hidden, targets, temperatures, top, learns_entropy)
        if (balance := balance_loss(base, routed)) is not None:
            scores = scores._replace(balance=balance_coefficient(base) * balance)
        critic = getattr(base, "value_head", None)
        return scores if critic is None else scores._replace(values=critic(hidden.to(critic.weight.dtype)).squeeze(-1))

    forward.gives_scores = True  # type: ignore[attr-defined]
    base.forward = forward


def learn_entropy(model: Any) -> None:
    """Give the entropy in `Scores` a gradient from now on; it takes memory that only a loss with an entropy bonus needs."""
    base_of(model).learns_entropy = True


def base_of(model: Any) -> Any:
    """Return the model below an adapter, or `model` itself."""
    return model.get_base_model() if hasattr(model, "get_base_model") else model


def pack_hidden(base: Any, input_ids: Tensor, position_ids: Tensor, ends: Tensor) -> Tensor:
    """Return the last hidden states [T, H] of a pack's tree tokens.

    An ordinary row runs through the model as it is; a tree runs at once where the model attends by trees, else row by row.

    Raises:
        DataError: see `require_steady`.
    """
    if int(ends.min()) == len(ends):
        return hidden_states(base, input_ids)[0]
    require_steady(base, int(position_ids.max()) + 1)
    if not packs(base):
        return _row_by_row(base, input_ids, ends)
    tree = tree_of(base, ends, position_ids[0])
    return hidden_states(base, input_ids, position_ids=position_ids, attention_mask=tree.mask(None), pack_tree=tree)[0]


def _row_by_row(base: Any, input_ids: Tensor, ends: Tensor) -> Tensor:
    """Run each path of the tree alone; a token shared by several paths is taken from the first, since it is equal in all."""
    node = torch.arange(len(ends), device=ends.device)
    parts, done = [], 0
    for leaf in (ends == node + 1).nonzero()[:, 0].tolist():
        path = ((node <= leaf) & (leaf < ends)).nonzero()[:, 0]
        parts.append(hidden_states(base, input_ids[:, path])[0, done - leaf - 1 :])
        done = leaf + 1
    return torch.cat(parts)


def score_pack(model: nn.Module, pack: Mapping[str, Tensor]) -> Scores:
    """Return the scores of a pack under a model with a scoring head; `model` may be wrapped."""
    return model(
        input_ids=pack["input_ids"],
        position_ids=pack["position_ids"],
        ends=pack["ends"],
        score=(pack["score_index"], pack["targets"], pack["temperatures"], pack.get("top")),
    )


def _score(base: Any, hidden: Tensor, targets: Tensor, temperatures: Tensor, top: Tensor | None, learns_entropy: bool) -> Scores:
    """Compute the scores of hidden states [U, H] in chunks whose logits are recomputed in the backward pass."""
    streams = (hidden, targets, temperatures, *(() if top is None else (top,)))
    parts = [
        checkpoint(_score_chunk, base, learns_entropy, *(stream[start : start + _CHUNK] for stream in streams), use_reentrant=False)
        for start in range(0, max(len(targets), 1), _CHUNK)  # an empty pack still gives every parameter a gradient
    ]
    return Scores(*(torch.cat(stream) for stream in zip(*parts, strict=True)))


def _score_chunk(
    base: Any, learns_entropy: bool, hidden: Tensor, targets: Tensor, temperatures: Tensor, top: Tensor | None = None
) -> tuple[Tensor, ...]:
    logits = logits_of(base, hidden)
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32)) / temperatures[:, None]
    normaliser = logits.logsumexp(-1)
    chosen = logits.gather(-1, targets[:, None]).squeeze(-1)
    with torch.set_grad_enabled(learns_entropy and torch.is_grad_enabled()):
        entropy = normaliser - (torch.softmax(logits, -1) * logits).sum(-1)
    if top is None:
        return chosen - normaliser, entropy
    return chosen - normaliser, entropy, logits.gather(-1, top) - normaliser[:, None]
