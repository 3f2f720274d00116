"""The forms in which weights are exported. Imports no heavy library."""

from __future__ import annotations

from typing import Literal, get_args

GgufForm = Literal["gguf-f16", "gguf-q8_0", "gguf-q4_1"]
Form = Literal["adapter", "merged", "quantized", "gguf-f16", "gguf-q8_0", "gguf-q4_1"]

GGUF_FORMS: tuple[GgufForm, ...] = get_args(GgufForm)
