"""Many adapters on one base model, side by side in a pass: each row is computed with its own, and the base once for all.

What an adapter adds to a linear layer is computed apart from the layer, for the tokens of the rows that have it. So the weights of
the base are in memory once, an adapter costs its own bytes, and one may be loaded or forgotten between two passes.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.errors import DataError

_PREFIX, _DOWN, _UP = "base_model.model.", ".lora_A.weight", ".lora_B.weight"
_UNFIT = (
    "use_dora",
    "modules_to_save",
    "rank_pattern",
    "alpha_pattern",
    "lora_bias",
    "target_parameters",
    "trainable_token_indices",
)
_FIX = "serve it alone, without --per-user, or train with train.lora.variant lora or rslora"


class Added(NamedTuple):
    """What an adapter adds to a linear layer: the input times `down` (r, in), times `up` (out, r), which holds the scale."""

    down: Tensor
    up: Tensor


class Adapter:
    """The LoRA adapter of one policy.

    Args:
        directory: with adapter_config.json and adapter_model.safetensors.
        model: the base model that it was trained on, without an adapter of its own.

    Attributes:
        layers: what it adds, by the name of the linear layer.

    Raises:
        DataError: it is of another kind than LoRA on linear layers, or does not fit the model.
    """

    def __init__(self, directory: Path, model: Any) -> None:
        config, weights = _config(directory), load_file(directory / "adapter_model.safetensors")
        places = {name: module for name, module in model.named_modules() if hasattr(module, "in_features")}
        names = {name.removesuffix(end) for name in weights for end in (_DOWN, _UP) if name.endswith(end)}
        if len(weights) != 2 * len(names):
            raise DataError("it holds more than the two matrices of LoRA for each layer", str(directory), _FIX)
        if not all(weight.isfinite().all() for weight in weights.values()):
            raise DataError("a weight of the adapter is no number", str(directory))
        scale = _scale(config)
        self.layers = {
            name.removeprefix(_PREFIX): _added(weights, name, scale, places.get(name.removeprefix(_PREFIX)), directory)
            for name in sorted(names)
        }

    @property
    def bytes(self) -> int:
        """Size of its weights."""
        return sum(part.nbytes for added in self.layers.values() for part in added)


def _config(directory: Path) -> JsonObject:
    config: JsonObject = json.loads((directory / "adapter_config.json").read_text(encoding="utf-8"))
    unfit = next((name for name in _UNFIT if config.get(name)), None)
    unfit = unfit or ("bias" if config.get("bias", "none") != "none" else None)
    if unfit or config.get("peft_type") != "LORA":
        raise DataError(f"adapters side by side are LoRA on linear layers, and this one has {unfit or 'another form'}", fix=_FIX)
    return config


def _scale(config: JsonObject) -> float:
    rank = config["r"]
    return config["lora_alpha"] / (math.sqrt(rank) if config.get("use_rslora") else rank)


def _added(weights: dict[str, Tensor], name: str, scale: float, layer: Any, directory: Path) -> Added:
    if layer is None:
        raise DataError(f"the base model has no linear layer {name.removeprefix(_PREFIX)!r}", str(directory), _FIX)
    down, up = weights[name + _DOWN], weights[name + _UP]
    if (down.shape[1], up.shape[0]) != (layer.in_features, layer.out_features):
        raise DataError(f"the layer {name.removeprefix(_PREFIX)!r} of the base model has another shape", str(directory), _FIX)
    device = next(layer.parameters()).device
    return Added(down.to(device), (up.float() * scale).to(device, up.dtype))


class Span(NamedTuple):
    """The tokens [start, end) of a pass, and the adapter of their row."""

    adapter: Adapter
    start: int
    end: int


class SideBySide:
    """Adds to a model's linear layers what the adapter of each row adds.

    Args:
        model: the base model, without an adapter of its own; it computes as before where no adapter is placed.
    """

    def __init__(self, model: Any) -> None:
        self._tokens: list[tuple[Adapter, slice | Tensor]] = []
        for name, module in model.named_modules():
            if hasattr(module, "in_features"):
                module.register_forward_hook(partial(self._add, name))

    @contextmanager
    def placed(self, spans: Sequence[Span]) -> Iterator[None]:
        """Use the rows' adapters in the passes of this block; the tokens of no span get the base model alone."""
        self._tokens = _by_adapter(spans)
        try:
            yield
        finally:
            self._tokens = []

    def _add(self, name: str, _: nn.Module, inputs: tuple[Tensor, ...], out: Tensor) -> Tensor:
        """Add to a layer's output (1, N, out) in place."""
        for adapter, tokens in self._tokens:
            if added := adapter.layers.get(name):
                own = inputs[0][0, tokens].to(added.down.dtype)
                out[0, tokens] += (own @ added.down.T @ added.up.T).to(out.dtype)
        return out


def _by_adapter(spans: Sequence[Span]) -> list[tuple[Adapter, slice | Tensor]]:
    """Return the tokens of each adapter: as a slice where it has one row, else as their numbers."""
    rows: dict[int, list[Span]] = {}
    for span in spans:
        rows.setdefault(id(span.adapter), []).append(span)
    return [(own[0].adapter, _tokens(own)) for own in rows.values()]


def _tokens(spans: Sequence[Span]) -> slice | Tensor:
    if len(spans) == 1:
        return slice(spans[0].start, spans[0].end)
    return torch.tensor([place for span in spans for place in range(span.start, span.end)])
