"""Write one GGUF file of a directory of weights, and read it back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedConfig

from clawpipe.core.conversation.messages import ToolCallFormat
from clawpipe.model.policy.template import open_renderer
from clawpipe.model.policy.vocabulary import load_tokenizer
from clawpipe.serve.export.forms import GgufForm
from clawpipe.serve.export.gguf.families import Family, add_settings, family_of, rope_of
from clawpipe.serve.export.gguf.tensors import BITS, Tensor, tensors_of
from clawpipe.serve.export.gguf.vocabulary import Vocabulary, add_vocabulary, vocabulary_of

FILE = "model.gguf"


def require_writable(base: Path) -> tuple[PreTrainedConfig, Family, Vocabulary]:
    """Return a model's settings, family and vocabulary, read from the directory of its weights.

    Raises:
        ConfigError: the model cannot be written as GGUF; nothing but its settings and tokenizer were read.
    """
    config = AutoConfig.from_pretrained(base, trust_remote_code=False)
    family = family_of(config, str(base))
    return config, family, vocabulary_of(load_tokenizer(base), config.vocab_size, str(base))


def write_gguf(weights: Path, form: GgufForm, directory: Path, title: str, calls: ToolCallFormat) -> None:
    """Write the safetensors in `weights` as `model.gguf` in `directory`.

    Args:
        title: name of the model that the file shows.
        calls: tool-call format, which says how a turn ends.

    Raises:
        ConfigError: the model cannot be written as GGUF.
        TrainingError: a weight is too large for the form's bits.
    """
    config, family, vocabulary = require_writable(weights)
    tokenizer = load_tokenizer(weights)
    tensors = list(tensors_of(weights, config, family, BITS[form]))
    writer = gguf.GGUFWriter(directory / FILE, gguf.MODEL_ARCH_NAMES[family.architecture])
    writer.add_type("model")
    writer.add_name(title)
    writer.add_file_type(BITS[form].file_type)
    writer.add_quantization_version(gguf.GGML_QUANT_VERSION)
    add_settings(writer, config)
    add_vocabulary(writer, tokenizer, vocabulary, open_renderer(tokenizer, calls, ()).eos_id)
    _write(writer, tensors)


def read_back(directory: Path, like: PreTrainedConfig, device: torch.device) -> Any:
    """Load `model.gguf` by transformers, in float32.

    Args:
        like: settings of the model that was written. Of them are those that are in the file, where llama.cpp reads them, and that
            transformers does not look for there.
    """
    config = AutoConfig.from_pretrained(directory, gguf_file=FILE)
    for name in ("head_dim", "attention_bias", "mlp_bias"):
        if hasattr(like, name):
            setattr(config, name, getattr(like, name))
    if rope_of(like)["rope_type"] != "default":
        config.rope_parameters = like.rope_parameters
    model: Any = AutoModelForCausalLM.from_pretrained(directory, gguf_file=FILE, config=config, dtype=torch.float32)
    return model.to(device).eval()


def _write(writer: gguf.GGUFWriter, tensors: list[Tensor]) -> None:
    """Write header, settings and tensors, one of which is in memory at a time."""
    for tensor in tensors:
        writer.add_tensor_info(tensor.name, tensor.shape, np.dtype(np.float32), tensor.size, tensor.kind)
    try:
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_ti_data_to_file()
        for tensor in tensors:
            writer.write_tensor_data(tensor.read())
    finally:
        writer.close()
