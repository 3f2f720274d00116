"""The load-balancing loss of a mixture of experts, by transformers' own function, of the tokens that a pack computes.

A checkpoint asks for it by `output_router_logits` and `router_aux_loss_coef` in its config.json. It comes from the logits of the
routers, which hooks take while the decoder runs.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

Logits = list[Tensor]


def balance_coefficient(base: Any) -> float:
    """Return the factor of the load-balancing loss in training; 0 of a model that asks for none, or that has no such loss."""
    config = base.config.get_text_config()
    asked = getattr(config, "output_router_logits", False) and _routers(base) and _loss_of(base)
    return float(getattr(config, "router_aux_loss_coef", 0.0)) if asked else 0.0


@contextmanager
def router_logits(base: Any) -> Iterator[Logits]:
    """Collect the logits of the routers [tokens, experts], in the order of their calls, where gradients are kept in this block."""
    found: Logits = []
    wanted = torch.is_grad_enabled() and balance_coefficient(base) > 0
    hooks = [router.register_forward_hook(partial(_take, found, index)) for router, index in _routers(base)] if wanted else []
    try:
        yield found
    finally:
        for hook in hooks:
            hook.remove()


def balance_loss(base: Any, logits: Logits) -> Tensor | None:
    """Return the load-balancing loss of collected logits, without its coefficient; None of none."""
    loss = _loss_of(base)
    return loss(tuple(logits), base.num_experts, base.num_experts_per_tok) if loss and logits else None


def _routers(base: Any) -> list[tuple[nn.Module, int]]:
    """Return the model's routers, each with the place of the logits in what it returns."""
    recorded = (getattr(base, "_can_record_outputs", None) or {}).get("router_logits")
    kind = getattr(recorded, "target_class", None)
    return [(module, recorded.index) for module in base.modules() if isinstance(module, kind)] if kind and recorded else []


def _loss_of(base: Any) -> Callable[..., Tensor] | None:
    """Return the function in the module of the model's family, for families that call it with the same two numbers."""
    known = hasattr(base, "num_experts") and hasattr(base, "num_experts_per_tok")
    return getattr(sys.modules[type(base).__module__], "load_balancing_loss_func", None) if known else None


def _take(found: Logits, index: int, router: nn.Module, given: Any, returned: Any) -> None:
    found.append(returned[index] if isinstance(returned, tuple) else returned)
