"""An adapter made part of its base's weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from peft import PeftModel

from clawpipe.policy.load import load_base
from clawpipe.training.model.adapter import save_model


def merge(base: Path, adapter: Path, dtype: str, directory: Path) -> None:
    """Add an adapter to the weights of `base` and write the model, tokenizer included, as safetensors in `dtype`.

    The base is the full-precision one, however the adapter was trained: in a quantised layer a light update is smaller than
    the distance between two values that the layer can hold, and is rounded away. The sum is made in float32 on the CPU.
    """
    core = load_base(base, "float32", torch.device("cpu"))
    grown: Any = PeftModel.from_pretrained(core, adapter, is_trainable=False, use_safetensors=True)
    merged = grown.merge_and_unload().to(getattr(torch, dtype))
    save_model(merged, directory, base)
