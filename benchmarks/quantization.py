"""How far from a model are its quantized weights?

    python benchmarks/quantization.py --json > benchmarks/quantization.json

SmolLM2-135M in each form of `model.quantization` reads a short text of English and code, and its log-probs of the whole vocabulary
are compared with those of float32: KL(float32 || form), mean over the text's tokens. fp8 runs on a CPU, where its weights are
converted back before they are multiplied; int4-torchao has kernels for GPUs alone, so here its weights are rounded by torchao's own
functions, to the numbers that its kernel would multiply, and multiplied in float32. Both say `emulated`. Claims: eight bits stay
below 0.1 nats per token, and four below 1.
"""

from __future__ import annotations

import argparse
import json
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any, cast, get_args
from unittest.mock import patch

import torch
from torch import Tensor
from torch.nn import functional

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.core.config.quantization import GPU_ONLY, Quantization
from clawpipe.model.policy import load
from clawpipe.model.policy.base import resolve_base
from clawpipe.model.policy.vocabulary import load_tokenizer

TEXT = """The harbour master wrote down each ship that came in before noon, what it carried, and who had paid for the berth.

def total(prices, floor=0):
    return sum(price for price in prices if price > floor)
"""
GROUP, WIDTH = 128, 1024  # of int4-torchao: inputs that share a scale, and to whose multiple its kernel pads them
MOST = {"nf4": 1.0, "int8": 0.1, "int8-torchao": 0.1, "fp8": 0.1, "int4-torchao": 1.0}


def read(model: Any, ids: Tensor) -> Tensor:
    """Log-probs [T, V] of the whole vocabulary after each token."""
    with torch.inference_mode():
        return functional.log_softmax(model(input_ids=ids).logits[0].double(), -1)


def loaded(base: Path, form: Quantization) -> Any:
    with patch.object(load, "require"):  # which refuses a CPU for fp8
        return load.load_base(base, "float32", torch.device("cpu"), quantization=form)


def in_four_bits(base: Path) -> Any:
    """The model with the weights of its linear layers, but the head's, rounded as int4-torchao rounds them."""
    model = loaded(base, "none")
    with torch.no_grad():
        for name, layer in model.named_modules():
            if isinstance(layer, torch.nn.Linear) and name != "lm_head":
                layer.weight.copy_(rounded(layer.weight.bfloat16()).float())
    return model


def rounded(weight: Tensor) -> Tensor:
    """Round a matrix (out, in) of bfloat16 to 16 levels a group, by torchao's functions for its tinygemm kernel."""
    from torchao.quantization.quant_primitives import (
        MappingType,
        _choose_qparams_affine_tinygemm,
        _dequantize_affine_tinygemm,
        _quantize_affine_tinygemm,
    )

    width, block = weight.shape[1], cast(Any, (1, GROUP))  # torchao's annotations know one dimension
    padded = functional.pad(weight, (0, -width % WIDTH))
    levels = {"quant_min": 0, "quant_max": 15}
    scale, zero = _choose_qparams_affine_tinygemm(
        padded,
        mapping_type=MappingType.ASYMMETRIC,
        block_size=block,
        target_dtype=torch.int32,
        scale_dtype=torch.bfloat16,
        zero_point_dtype=torch.bfloat16,
        **levels,
    )
    held = _quantize_affine_tinygemm(padded, block, scale, zero, torch.int32, **levels)
    return _dequantize_affine_tinygemm(held, block, scale, zero, torch.int32, output_dtype=torch.bfloat16, **levels)[:, :width]


def measured(base: Path) -> list[JsonObject]:
    ids = torch.tensor([load_tokenizer(base).encode(TEXT)])
    reference, rows = read(loaded(base, "none"), ids), []
    for form in get_args(Quantization)[1:]:
        own = read(in_four_bits(base) if form == "int4-torchao" else loaded(base, form), ids)
        far = (reference.exp() * (reference - own)).sum(-1)
        rows.append({"form": form, "emulated": form in GPU_ONLY, "tokens": ids.shape[1], "kl": round(float(far.mean()), 4)})
        print(rows[-1], file=sys.stderr)
    return rows


def holds(rows: list[JsonObject]) -> bool:
    return all(row["kl"] < MOST[row["form"]] for row in rows)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args()
    rows = measured(resolve_base("smollm2-135m-instruct").path)
    if options.json:
        libraries = {name: version(name) for name in ("bitsandbytes", "torchao", "transformers", "torch")}
        print(json.dumps({"model": "smollm2-135m-instruct", "libraries": libraries, "rows": rows, "holds": holds(rows)}, indent=2))
    return 0 if holds(rows) else 1


if __name__ == "__main__":
    sys.exit(main())
