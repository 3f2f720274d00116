"""The sizes of a decoder-only transformer, from its config.json or from a table of public models."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from clawpipe.errors import ConfigError, NotFoundError


@dataclass(frozen=True)
class Architecture:
    """A Llama-like decoder: attention with grouped keys and values, a gated MLP, and negligible biases.

    Counts are of elements, not bytes. Source of the shapes: transformers' `LlamaConfig`.
    """

    name: str
    hidden: int
    intermediate: int
    layers: int
    heads: int
    kv_heads: int
    vocabulary: int
    head_size: int
    tied: bool = False  # whether head and embedding share weights
    context: int = 32768

    @property
    def linears(self) -> dict[str, tuple[int, int]]:
        """(in, out) of each linear module of one layer, by name."""
        query, key = self.heads * self.head_size, self.kv_heads * self.head_size
        return {
            "self_attn.q_proj": (self.hidden, query),
            "self_attn.k_proj": (self.hidden, key),
            "self_attn.v_proj": (self.hidden, key),
            "self_attn.o_proj": (query, self.hidden),
            "mlp.gate_proj": (self.hidden, self.intermediate),
            "mlp.up_proj": (self.hidden, self.intermediate),
            "mlp.down_proj": (self.intermediate, self.hidden),
        }

    @property
    def linear_parameters(self) -> int:
        """Number of weights in all layers' linear modules, which quantization compresses."""
        return self.layers * sum(rows * columns for rows, columns in self.linears.values())

    @property
    def other_parameters(self) -> int:
        """Number of weights in embedding, head and norms, which are never quantized."""
        return self.vocabulary * self.hidden * (1 if self.tied else 2) + (2 * self.layers + 1) * self.hidden

    @property
    def parameters(self) -> int:
        return self.linear_parameters + self.other_parameters


def _shape(
    hidden: int,
    intermediate: int,
    layers: int,
    heads: int,
    kv_heads: int,
    vocabulary: int,
    *,
    tied: bool = False,
    size: int = 0,
    context: int = 32768,
) -> Architecture:
    return Architecture(
        "", hidden, intermediate, layers, heads, kv_heads, vocabulary, size or hidden // heads, tied=tied, context=context
    )


KNOWN = {  # by hub id without suffixes like `-instruct`, which do not change sizes
    "random": _shape(64, 128, 2, 4, 2, 259, tied=False, context=1024),
    "smollm2-135m": _shape(576, 1536, 30, 9, 3, 49152, tied=True, context=8192),
    "huggingfacetb/smollm2-135m": _shape(576, 1536, 30, 9, 3, 49152, tied=True, context=8192),
    "huggingfacetb/smollm2-360m": _shape(960, 2560, 32, 15, 5, 49152, tied=True, context=8192),
    "huggingfacetb/smollm2-1.7b": _shape(2048, 8192, 24, 32, 32, 49152, tied=True, context=8192),
    "qwen/qwen2.5-0.5b": _shape(896, 4864, 24, 14, 2, 151936, tied=True),
    "qwen/qwen2.5-1.5b": _shape(1536, 8960, 28, 12, 2, 151936, tied=True),
    "qwen/qwen2.5-3b": _shape(2048, 11008, 36, 16, 2, 151936, tied=True),
    "qwen/qwen2.5-7b": _shape(3584, 18944, 28, 28, 4, 152064),
    "qwen/qwen2.5-14b": _shape(5120, 13824, 48, 40, 8, 152064),
    "qwen/qwen2.5-32b": _shape(5120, 27648, 64, 40, 8, 152064),
    "qwen/qwen2.5-72b": _shape(8192, 29568, 80, 64, 8, 152064),
    "qwen/qwen3-0.6b": _shape(1024, 3072, 28, 16, 8, 151936, tied=True, size=128, context=40960),
    "qwen/qwen3-1.7b": _shape(2048, 6144, 28, 16, 8, 151936, tied=True, size=128, context=40960),
    "qwen/qwen3-4b": _shape(2560, 9728, 36, 32, 8, 151936, tied=True, size=128, context=40960),
    "qwen/qwen3-8b": _shape(4096, 12288, 36, 32, 8, 151936, size=128, context=40960),
    "qwen/qwen3-14b": _shape(5120, 17408, 40, 40, 8, 151936, size=128, context=40960),
    "qwen/qwen3-32b": _shape(5120, 25600, 64, 64, 8, 151936, size=128, context=40960),
    "meta-llama/llama-2-7b": _shape(4096, 11008, 32, 32, 32, 32000, context=4096),
    "meta-llama/llama-2-13b": _shape(5120, 13824, 40, 40, 40, 32000, context=4096),
    "meta-llama/llama-2-70b": _shape(8192, 28672, 80, 64, 8, 32000, context=4096),
    "meta-llama/llama-3.1-8b": _shape(4096, 14336, 32, 32, 8, 128256, context=131072),
    "meta-llama/llama-3.1-70b": _shape(8192, 28672, 80, 64, 8, 128256, context=131072),
    "meta-llama/llama-3.2-1b": _shape(2048, 8192, 16, 32, 8, 128256, tied=True, size=64, context=131072),
    "meta-llama/llama-3.2-3b": _shape(3072, 8192, 28, 24, 8, 128256, tied=True, size=128, context=131072),
    "meta-llama/llama-3.3-70b": _shape(8192, 28672, 80, 64, 8, 128256, context=131072),
    "mistralai/mistral-7b": _shape(4096, 14336, 32, 32, 8, 32768),
}
_LARGEST = 1 << 40  # upper limit of every size
_WIDTHS = ("hidden_size", "n_embd")  # the latter is gpt2's word
_VARIANTS = ("-hf", "-chat", "-instruct", "-base", "-v0.3")


def architecture_of(name: str) -> Architecture:
    """Return the sizes of the base model `name`: a directory, a name in the table, or a model in the hub cache.

    Nothing is downloaded.

    Raises:
        NotFoundError: the model's config.json is not on this machine.
        ConfigError: the config is of an unsupported kind of model.
    """
    directory = Path(name).expanduser()
    if (directory / "config.json").is_file():
        return from_config(name, _read(directory / "config.json"))
    if (known := KNOWN.get(_plain(name))) is not None:
        return replace(known, name=name)
    if (cached := _in_hub_cache(name)) is not None:
        return from_config(name, _read(cached))
    raise NotFoundError(
        f"the sizes of {name!r} are not known here",
        "model.base",
        "name a directory that holds its config.json, or download the model first: `hf download` of its config.json is enough",
    )


def width_of(name: str) -> int | None:
    """Return the hidden size of the base model `name`, a mixture of experts too; None if it is not known on this machine."""
    if (known := KNOWN.get(_plain(name))) is not None:
        return known.hidden
    try:
        config = _config_of(name)
        return _size(config, next((field for field in _WIDTHS if field in config), _WIDTHS[0]))
    except (ConfigError, ValueError):
        return None


def config_file(name: str) -> Path | None:
    """Return the config.json of the model `name`, beside which its other files lie; None if it is not here."""
    file = Path(name).expanduser() / "config.json"
    return file if file.is_file() else _in_hub_cache(name)


def _config_of(name: str) -> Mapping[str, Any]:
    """Return the model's config.json, of a vision-language model with the settings of its language part; {} if it is not here."""
    file = config_file(name)
    config = _read(file) if file else {}
    return {**config, **(config.get("text_config") or {})}


def has_experts(name: str) -> bool:
    """Return whether the model `name` is a mixture of experts, as far as its config is here."""
    return _has_experts(_config_of(name))


def known_architecture(name: str) -> Architecture | None:
    """Return the sizes of the model `name` in the table of public models, all of which have Llama's modules."""
    return KNOWN.get(_plain(name))


def router_note(name: str) -> str:
    """Return that a mixture of experts is trained without its router's load-balancing loss; "" if it asks for that loss, and of any
    other model."""
    config = _config_of(name)
    if not _has_experts(config) or (config.get("output_router_logits") and config.get("router_aux_loss_coef")):
        return ""
    fix = "for it, its config.json has to say `output_router_logits: true` and a `router_aux_loss_coef`"
    return f"{name} is a mixture of experts and is trained without its router's load-balancing loss; {fix}"


def _has_experts(config: Mapping[str, Any]) -> bool:
    return any(config.get(key) for key in ("num_experts", "num_local_experts", "n_routed_experts"))


def from_config(name: str, config: Mapping[str, Any]) -> Architecture:
    """Return the sizes in a config.json.

    Raises:
        ConfigError: it is a mixture of experts, or not a decoder like Llama.
    """
    if isinstance(config.get("text_config"), Mapping):  # of a vision-language model, the language part is trained
        config = {**config, **config["text_config"]}
    if _has_experts(config):
        raise ConfigError("the memory of a mixture of experts is not estimated", "model.base", "plan a dense model")
    try:
        hidden, heads = _size(config, "hidden_size"), _size(config, "num_attention_heads")
        return Architecture(
            name=name,
            hidden=hidden,
            intermediate=_size(config, "intermediate_size"),
            layers=_size(config, "num_hidden_layers"),
            heads=heads,
            kv_heads=_size(config, "num_key_value_heads", heads),
            vocabulary=_size(config, "vocab_size"),
            head_size=_size(config, "head_dim", hidden // heads),
            tied=config.get("tie_word_embeddings") is True,
            context=_size(config, "max_position_embeddings", 32768),
        )
    except ValueError as error:
        what = f"its config.json describes no decoder of the Llama shape: {error}"
        raise ConfigError(what, name, "name a dense decoder; the night itself may know what the estimate does not") from None


def _size(config: Mapping[str, Any], name: str, default: int | None = None) -> int:
    """Return a size in a config.json; null counts as missing, so the default applies.

    Raises:
        ValueError: the value is missing, or no positive integer.
    """
    value = config.get(name) if config.get(name) is not None else default
    if isinstance(value, bool) or not isinstance(value, int | float) or not 1 <= value < _LARGEST or value != int(value):
        raise ValueError(f"{name} is {value!r}" if name in config else f"it has no {name}")
    return int(value)


def _read(file: Path) -> Mapping[str, Any]:
    try:
        found = json.loads(file.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError(f"not a readable model config: {error}", str(file), "download the model again") from None
    if not isinstance(found, dict):
        raise ConfigError("a model's config.json is a JSON object", str(file), "download the model again")
    return found


def _plain(name: str) -> str:
    plain = name.lower()
    while stripped := next((plain.removesuffix(end) for end in _VARIANTS if plain.endswith(end)), ""):
        plain = stripped
    return plain


def _in_hub_cache(name: str) -> Path | None:
    from huggingface_hub import try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError

    try:
        found = try_to_load_from_cache(name, "config.json")
    except HFValidationError:
        return None
    return Path(found) if isinstance(found, str) else None
