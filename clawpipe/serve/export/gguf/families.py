"""Model families that are written as GGUF: what llama.cpp calls them, and which settings of theirs it computes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import gguf
from gguf import MODEL_ARCH
from transformers import PreTrainedConfig

from clawpipe.errors import ConfigError

_ROPE_TYPES = ("default", "llama3")


class Family(NamedTuple):
    """A family of models.

    Attributes:
        architecture: llama.cpp's name of its computation.
        interleaved: whether llama.cpp rotates neighbouring pairs of a head, where transformers rotates its two halves.
    """

    architecture: MODEL_ARCH
    interleaved: bool


_FAMILIES = {  # by model_type of transformers
    "llama": Family(MODEL_ARCH.LLAMA, True),
    "mistral": Family(MODEL_ARCH.LLAMA, True),
    "qwen2": Family(MODEL_ARCH.QWEN2, False),
    "qwen3": Family(MODEL_ARCH.QWEN3, False),
}


def family_of(config: PreTrainedConfig, where: str) -> Family:
    """Return the family of a model.

    Raises:
        ConfigError: it is none of those that are written here, or has a setting that the file cannot hold.
    """
    family = _FAMILIES.get(config.model_type)
    if family is None:
        known = ", ".join(sorted(_FAMILIES))
        raise refused(f"models of the family {config.model_type!r} cannot be written as GGUF (but those of {known})", where)
    for what in _deviations(config):
        raise refused(f"this model has {what}, which is not written as GGUF here", where)
    return family


def refused(what: str, where: str) -> ConfigError:
    """Return the error for a model that cannot be written."""
    return ConfigError(what, where, "export it merged, and convert that with llama.cpp's convert_hf_to_gguf.py")


def add_settings(writer: gguf.GGUFWriter, config: PreTrainedConfig) -> None:
    """Write a model's settings under llama.cpp's names."""
    heads = config.num_attention_heads
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(heads)
    writer.add_head_count_kv(getattr(config, "num_key_value_heads", None) or heads)
    writer.add_key_length(head_size(config))
    writer.add_value_length(head_size(config))
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_dimension_count(head_size(config))
    writer.add_rope_freq_base(rope_of(config)["rope_theta"])
    writer.add_vocab_size(config.vocab_size)


def head_size(config: PreTrainedConfig) -> int:
    """Return the number of dimensions of a head."""
    return getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads


def rope_of(config: PreTrainedConfig) -> dict[str, Any]:
    """Return the settings of rotary positions."""
    return {"rope_type": "default", "rope_theta": 10000.0} | dict(getattr(config, "rope_parameters", None) or {})


def _deviations(config: PreTrainedConfig) -> Iterator[str]:
    """Yield what a model has that llama.cpp does not compute for its family, or that is not written here."""
    if config.hidden_act != "silu":
        yield f"the activation {config.hidden_act!r}"
    if "sliding_attention" in (getattr(config, "layer_types", None) or ()) or _slides(config):
        yield "layers with a sliding window"
    if config.model_type == "qwen3" and config.attention_bias:
        yield "biases in its attention"
    rope = rope_of(config)
    if rope["rope_type"] not in _ROPE_TYPES:
        yield f"rotary positions of the kind {rope['rope_type']!r}"
    if rope.get("partial_rotary_factor") not in (None, 1.0):
        yield "heads that are rotated in part"


def _slides(config: PreTrainedConfig) -> bool:
    window = getattr(config, "sliding_window", None)
    return bool(window and getattr(config, "use_sliding_window", True) and window < config.max_position_embeddings)
