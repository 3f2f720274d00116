"""How far from a policy are its GGUF files?

    python benchmarks/gguf_distance.py --json > benchmarks/gguf_distance.json

Each model gets an adapter on all its linear layers, whose product has `--change` of the norm of the layer's weights: SmolLM2 came
here in four bits, so that without an adapter four bits would change nothing. The policy is exported in each form, the file is read
back by transformers, and both are asked for log-probs of a short English text. Claims: the largest and the mean distance stay below
two thirds of what `clawpipe models export` allows.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig, get_peft_model
from transformers import LlamaConfig, Qwen2Config, Qwen3Config
from transformers.models.auto.modeling_auto import AutoModelForCausalLM

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.model.policy.base import copy_companions, resolve_base
from clawpipe.model.policy.load import load_base
from clawpipe.model.policy.spec import PolicySpec
from clawpipe.serve.export.forms import GGUF_FORMS
from clawpipe.serve.export.gguf.policy import write_measured
from clawpipe.serve.export.gguf.write import FILE
from clawpipe.serve.export.measured import GGUF_BOUNDS
from clawpipe.serve.export.ollama import Episode

WIDTHS = {"hidden_size": 512, "intermediate_size": 1024, "num_hidden_layers": 4, "num_attention_heads": 8, "num_key_value_heads": 4}
CONFIGS = {"random llama": LlamaConfig, "random qwen2": Qwen2Config, "random qwen3": Qwen3Config}


def random_base(kind: Any, words: Path, directory: Path) -> Path:
    """Write a model of random weights with the tokenizer of another one."""
    torch.manual_seed(0)
    size = vocabulary_size(words)
    AutoModelForCausalLM.from_config(kind(vocab_size=size, initializer_range=0.05, **WIDTHS)).save_pretrained(directory)
    copy_companions(words, directory)
    return directory


def vocabulary_size(words: Path) -> int:
    return json.loads((words / "config.json").read_bytes())["vocab_size"]


def adapter(base: Path, directory: Path, change: float) -> Path:
    """Write an adapter whose product has `change` of the norm of each layer's weights."""
    torch.manual_seed(1)
    model = load_base(base, "float32", torch.device("cpu"))
    grown = get_peft_model(model, LoraConfig(r=8, lora_alpha=8, target_modules="all-linear", task_type="CAUSAL_LM"))
    layers: list[Any] = [layer for layer in grown.modules() if hasattr(layer, "lora_A")]
    for layer in layers:
        first, second = layer.lora_A["default"].weight, layer.lora_B["default"].weight
        torch.nn.init.normal_(second)
        second.data *= change * layer.base_layer.weight.norm() / (second.data @ first.data).norm()
    grown.save_pretrained(str(directory))
    return directory


def measured(name: str, base: Path, change: float) -> list[JsonObject]:
    found = []
    with tempfile.TemporaryDirectory() as place:
        spec = PolicySpec(
            base=str(base),
            adapter=str(adapter(base, Path(place, "adapter"), change)),
            dtype="float32",
            tool_call_format="hermes",
            policy_version=name,
        )
        for form in GGUF_FORMS:
            directory = Path(place, form)
            directory.mkdir()
            distance, _ = write_measured(spec, form, directory, Episode())
            found.append({"model": name, "form": form, "mb": (directory / FILE).stat().st_size / 1e6, **distance})
            print(found[-1], file=sys.stderr)
    return found


def below(row: JsonObject) -> bool:
    """Whether both distances are below two thirds of the bound."""
    bound = GGUF_BOUNDS[row["form"]]
    return 1.5 * row["largest"] < bound.largest and 1.5 * row["mean"] < bound.mean


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--change", type=float, default=0.1, help="norm of the adapter's product, in that of the weights")
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args()
    small = resolve_base("smollm2-135m-instruct").path
    rows = measured("smollm2-135m-instruct", small, options.change)
    for name, kind in CONFIGS.items():
        with tempfile.TemporaryDirectory() as directory:
            rows += measured(name, random_base(kind, small, Path(directory)), options.change)
    failed = [row for row in rows if not below(row)]
    if options.json:
        libraries = {name: version(name) for name in ("gguf", "transformers", "torch")}
        print(json.dumps({"change": options.change, "libraries": libraries, "rows": rows, "holds": not failed}, indent=2))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
