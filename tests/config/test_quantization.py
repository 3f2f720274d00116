"""Combinations that no library can do are refused when the config is read, with what to use instead."""

from __future__ import annotations

from pathlib import Path

import pytest

from clawpipe.core.config import NightConfig, load_config
from clawpipe.errors import ConfigError

TINY = Path("configs/tiny.yaml")
REFUSED = [
    (("model.quantization=nf4", "train.adapter=full"), ["cannot be trained whole", "train.adapter to lora"]),
    (("model.quantization=int8", "train.lora.variant=dora"), ["dora", "int8-torchao or nf4"]),
    (("model.quantization=int4-torchao",), ["no gradient", "nf4"]),
    (("model.quantization=fp8", "runtime.device=cpu"), ["needs a GPU", "model.quantization to int8-torchao"]),
    (("serving.quantization=int8",), ["serving.artifact to merged"]),
    (("serving.artifact=merged", "serving.quantization=fp8", "runtime.device=cpu"), ["needs a GPU", "serving.quantization"]),
    (
        ("serving.artifact=merged", "serving.quantization=int4-torchao", "runtime.device=cuda"),
        ["bfloat16 alone", "model.dtype to bfloat16"],
    ),
    (("serving.artifact=merged", "train.start_from=champion"), ["merged champion", "train.start_from to base"]),
    (("model.quantization=int3",), ["nf4"]),
]
TAKEN = [
    ("model.quantization=nf4", "train.lora.variant=dora"),
    ("model.quantization=int8-torchao", "train.lora.variant=dora"),
    ("model.quantization=int8", "train.lora.variant=rslora"),
    ("model.quantization=fp8",),  # whether there is a GPU shows when the night starts
    ("model.quantization=nf4", "serving.artifact=merged", "serving.quantization=int8-torchao"),
    ("train.adapter=full", "serving.artifact=merged", "serving.quantization=nf4", "train.start_from=champion"),
    ("serving.artifact=merged", "serving.quantization=int4-torchao", "model.dtype=bfloat16", "runtime.device=cuda"),
]


@pytest.mark.parametrize(("overrides", "words"), REFUSED, ids=lambda value: " ".join(value))
def test_the_impossible_is_refused_with_a_way_out(overrides, words):
    with pytest.raises(ConfigError) as refused:
        load_config(TINY, overrides)
    assert all(word in refused.value.what for word in words), refused.value.what


@pytest.mark.parametrize("overrides", TAKEN, ids=" ".join)
def test_the_possible_is_taken_and_what_is_advised_is_possible(overrides):
    assert isinstance(load_config(TINY, overrides), NightConfig)
