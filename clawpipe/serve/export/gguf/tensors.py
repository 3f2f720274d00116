"""The tensors of a GGUF file: their names, order of rows and bits."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import gguf
import numpy as np
import torch
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType, LlamaFileType
from numpy.typing import NDArray
from safetensors import safe_open
from transformers import PreTrainedConfig

from clawpipe.errors import TrainingError
from clawpipe.serve.export.forms import GgufForm
from clawpipe.serve.export.gguf.families import Family, head_size, refused, rope_of

_HEAD = "lm_head.weight"


class Bits(NamedTuple):
    """Bits of weights: of most matrices, and of the input embedding and the output head. Vectors have 32."""

    matrices: GGMLQuantizationType
    ends: GGMLQuantizationType
    file_type: LlamaFileType


BITS: dict[GgufForm, Bits] = {
    "gguf-f16": Bits(GGMLQuantizationType.F16, GGMLQuantizationType.F16, LlamaFileType.MOSTLY_F16),
    "gguf-q8_0": Bits(GGMLQuantizationType.Q8_0, GGMLQuantizationType.Q8_0, LlamaFileType.MOSTLY_Q8_0),
    # llama.cpp gives the ends more bits too: their rounding moves every logit
    "gguf-q4_1": Bits(GGMLQuantizationType.Q4_1, GGMLQuantizationType.Q8_0, LlamaFileType.MOSTLY_Q4_1),
}


class Tensor(NamedTuple):
    """A tensor to be written; `read` computes its bytes when they are wanted, so that one tensor at a time is in memory."""

    name: str
    shape: tuple[int, ...]
    kind: GGMLQuantizationType
    read: Callable[[], NDArray[Any]]

    @property
    def size(self) -> int:
        """Number of bytes."""
        block, width = GGML_QUANT_SIZES[self.kind]
        return math.prod(self.shape) // block * width


def tensors_of(weights: Path, config: PreTrainedConfig, family: Family, bits: Bits) -> Iterator[Tensor]:
    """Yield the tensors of the safetensors in a directory.

    Raises:
        ConfigError: a tensor has no place in the family.
    """
    names = gguf.get_tensor_name_map(family.architecture, config.num_hidden_layers)
    for file in sorted(weights.glob("*.safetensors")):
        with safe_open(file, framework="pt") as stored:
            for source in sorted(stored.keys()):
                if source == _HEAD and config.tie_word_embeddings:
                    continue
                name = names.get_name(source, try_suffixes=(".weight", ".bias"))
                if name is None:
                    raise refused(
                        f"the tensor {source!r} has no place in llama.cpp's {family.architecture.name.lower()}", str(weights)
                    )
                shape = tuple(stored.get_slice(source).get_shape())
                kind = _kind(name, shape, bits)
                yield Tensor(name, shape, kind, _reader(file, source, _heads(name, config, family), kind))
    if rope_of(config)["rope_type"] == "llama3":
        yield _rope_factors(config)


def _kind(name: str, shape: tuple[int, ...], bits: Bits) -> GGMLQuantizationType:
    """Return the bits of a tensor; those of a row that does not consist of whole blocks are 16."""
    if len(shape) == 1:
        return GGMLQuantizationType.F32
    wanted = bits.ends if name in ("token_embd.weight", "output.weight") else bits.matrices
    return wanted if shape[-1] % GGML_QUANT_SIZES[wanted][0] == 0 else GGMLQuantizationType.F16


def _heads(name: str, config: PreTrainedConfig, family: Family) -> int | None:
    """Return the number of heads whose rows change places; None if none do."""
    if not family.interleaved:
        return None
    queries = config.num_attention_heads
    return {"attn_q": queries, "attn_k": config.num_key_value_heads or queries}.get(name.split(".")[-2])


def _reader(file: Path, source: str, heads: int | None, kind: GGMLQuantizationType) -> Callable[[], NDArray[Any]]:
    def read() -> NDArray[Any]:
        with safe_open(file, framework="pt") as stored:
            values = stored.get_tensor(source).to(torch.float32).numpy()
        if heads is not None:
            values = _interleaved(values, heads)
        with np.errstate(over="ignore"):
            made = gguf.quantize(np.ascontiguousarray(values), kind)
        if made.dtype.kind == "f" and not np.isfinite(made).all():
            raise TrainingError(f"a weight of {source!r} is not finite in {kind.name}", str(file), "export it merged")
        return made

    return read


def _interleaved(values: NDArray[Any], heads: int) -> NDArray[Any]:
    """Return rows (heads x two halves, ...) in the order heads x pairs, in which llama.cpp rotates them."""
    half = values.shape[0] // heads // 2
    return values.reshape(heads, 2, half, *values.shape[1:]).swapaxes(1, 2).reshape(values.shape)


def _rope_factors(config: PreTrainedConfig) -> Tensor:
    """Return the divisors of Llama 3.1's rotary frequencies, which llama.cpp reads as a tensor.

    Source of the formula: `_compute_llama3_parameters` of transformers.
    """
    rope = rope_of(config)
    low, high, factor = rope["low_freq_factor"], rope["high_freq_factor"], rope["factor"]
    steps = np.arange(0, head_size(config), 2, dtype=np.float64) / head_size(config)
    turns = rope["original_max_position_embeddings"] / (2 * np.pi * rope["rope_theta"] ** steps)  # over the context of pretraining
    smooth = np.clip((turns - low) / (high - low), 0, 1)
    divisors = (1 / ((1 - smooth) / factor + smooth)).astype(np.float32)
    return Tensor("rope_freqs.weight", divisors.shape, GGMLQuantizationType.F32, lambda: divisors)
