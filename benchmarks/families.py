"""Which families of transformers can be trained, and how exactly? Prints the figures that docs/models.md sums up.

    python benchmarks/families.py            # as Markdown
    python benchmarks/families.py --json llama gemma2

Claim: engine and trainer compute the log-probs of a family's own forward within 1e-3 nats in float32, or the model is refused.
Each row is a tiny model of random weights with standard deviation 0.2, large enough for an error to show, with a sliding window
of 16 tokens where the family has one; the figures are the largest distances in nats.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.errors import DataError
from clawpipe.learn.training.check_run import compare_trainer
from clawpipe.learn.training.model.tree_attention import use_packs
from clawpipe.model.engines.embedded import EmbeddedEngine
from clawpipe.model.policy.agreement import bound_of, require_agreement
from clawpipe.model.policy.load import load_policy
from clawpipe.model.policy.probe import Probe, probe_for, runs
from clawpipe.model.policy.tiny import byte_tokenizer
from clawpipe.play.workers.compare import compare_engine

_CPU = torch.device("cpu")
_SIZES = {
    "vocab_size": 259,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "pad_token_id": 258,
    "bos_token_id": 256,
    "eos_token_id": 257,
}
_WINDOW = {"sliding_window": 16}
_HEADS = {"head_dim": 16}
_EXPERTS = {"num_local_experts": 4, "num_experts_per_tok": 2}
_ROUTED = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
_GRANITE = {"logits_scaling": 0.3, "residual_multiplier": 0.5, "embedding_multiplier": 3.0, "attention_multiplier": 0.2}
_DELTA = {"linear_num_value_heads": 4, "linear_num_key_heads": 2, "linear_key_head_dim": 16, "linear_value_head_dim": 16}
_MIXED = {"layer_types": ["sliding_attention", "full_attention"]}
_GEMMA = {**_HEADS, **_WINDOW, **_MIXED, "query_pre_attn_scalar": 16}
_LATENT = {
    "q_lora_rank": 16,
    "kv_lora_rank": 16,
    "qk_rope_head_dim": 16,
    "qk_nope_head_dim": 16,
    "v_head_dim": 24,
    "num_key_value_heads": 4,
    "n_routed_experts": 4,
    "n_group": 1,
    "topk_group": 1,
    "first_k_dense_replace": 1,
}
_BAMBA = {"mamba_n_heads": 8, "mamba_d_head": 16, "mamba_d_state": 16, "mamba_chunk_size": 16, "attn_layer_indices": [1]}
_FALCON = {"mamba_d_ssm": 64, "mamba_n_heads": 4, "mamba_d_head": 16, "mamba_d_state": 16, "mamba_chunk_size": 16}
_JAMBA = {"num_experts": 2, "num_experts_per_tok": 1, "attn_layer_period": 2, "attn_layer_offset": 1, "use_mamba_kernels": False}

FAMILIES: dict[str, JsonObject] = {  # by transformers' model type
    "llama": {},
    "mistral": _WINDOW,
    "mixtral": _EXPERTS | _WINDOW,
    "ministral": _HEADS | _WINDOW | _MIXED,
    "qwen2": _WINDOW | {"use_sliding_window": True, "max_window_layers": 1},
    "qwen2_moe": _ROUTED | {"shared_expert_intermediate_size": 32},
    "qwen3": _HEADS,
    "qwen3_moe": _HEADS | _ROUTED,
    "qwen3_next": _HEADS | _ROUTED | _DELTA | {"num_hidden_layers": 4, "shared_expert_intermediate_size": 32},
    "qwen3_5_text": _HEADS | _DELTA | {"num_hidden_layers": 4},
    "gemma": _HEADS,
    "gemma2": _GEMMA | {"attn_logit_softcapping": 5.0, "final_logit_softcapping": 3.0},
    "gemma3_text": _GEMMA,
    "phi": {},
    "phi3": _WINDOW,
    "phimoe": _EXPERTS,
    "granite": _GRANITE,
    "granitemoe": _GRANITE | _EXPERTS,
    "olmo": {},
    "olmo2": {},
    "olmo3": _WINDOW | _MIXED,
    "olmoe": {"num_experts": 4, "num_experts_per_tok": 2},
    "smollm3": {"no_rope_layers": [1, 0]},
    "gpt_oss": _HEADS | _EXPERTS | _WINDOW,
    "cohere": {"logit_scale": 2.0},
    "cohere2": _WINDOW | _MIXED | {"logit_scale": 2.0},
    "glm4": _HEADS,
    "deepseek_v3": _LATENT | {"moe_intermediate_size": 32, "num_experts_per_tok": 2},
    "llama4_text": _HEADS | {"attention_chunk_size": 16, "num_local_experts": 2, "intermediate_size_mlp": 96},
    "starcoder2": _WINDOW,
    "stablelm": {},
    "nemotron": {},
    "gpt2": {"n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": 512},
    "gpt_neox": {},
    "opt": {"ffn_dim": 96, "word_embed_proj_dim": 64},
    "falcon": {"new_decoder_architecture": True, "num_kv_heads": 2},
    "bloom": {"n_layer": 2, "n_head": 4},
    "falcon_h1": _FALCON | {"lm_head_multiplier": 3.0},
    "jamba": _JAMBA | {"expert_layer_period": 2, "expert_layer_offset": 1, "mamba_d_state": 8},
    "bamba": _BAMBA,
    "lfm2": {"layer_types": ["conv", "full_attention"], "block_auto_adjust_ff_dim": False},
    "mamba": {},
    "mamba2": {"num_heads": 8, "head_dim": 16, "state_size": 16, "n_groups": 1, "chunk_size": 16},
    "bert": {},  # bidirectional, so no language model, though transformers loads it as one
}


def write_model(family: str, directory: Path, **changes: Any) -> Path:
    """Write a tiny model of random weights, with a byte tokenizer."""
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(family, **(_SIZES | FAMILIES[family] | changes)))
    with torch.no_grad():
        for weight in model.parameters():
            if weight.ndim > 1:
                weight.normal_(0, 0.2)
    model.save_pretrained(directory)
    byte_tokenizer().save_pretrained(directory)
    return directory


def measure(family: str) -> JsonObject:
    """Return how the family's rows are computed, and the figures of engine and trainer, or why it is refused."""
    row: JsonObject = {"family": family}
    with tempfile.TemporaryDirectory() as scratch:
        base = write_model(family, Path(scratch))
        try:
            with runs("engine", family):
                engine = EmbeddedEngine(base, None, device="cpu")
                found = [compare_engine(engine, engine.model, probe := probe_for(engine.model, base))]
            with runs("trainer", family):
                found.append(_trainer(base, probe))
            row |= {"rows": found[1].layout} | {figures.part: figures.largest for figures in found}
            for figures in found:
                require_agreement(figures, bound_of("float32", "none"), family)
        except DataError as error:
            row |= {"rows": "refused", "reason": error.what}
    return row


def _trainer(base: Path, probe: Probe) -> Any:
    model = load_policy(base, None, "float32", _CPU)
    use_packs(model, _CPU)
    return compare_trainer(model, probe)


def _table(rows: list[JsonObject]) -> str:
    lines = ["| family | rows | engine | trainer |", "|---|---|---|---|"]
    for row in rows:
        figures = (f"{row[part]:.0e}" if part in row else "-" for part in ("engine", "trainer"))
        lines.append(f"| `{row['family']}` | {row['rows']} | {' | '.join(figures)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("families", nargs="*", default=list(FAMILIES), metavar="FAMILY")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows = []
    for family in options.families:
        rows.append(measure(family))
        print(json.dumps(rows[-1]), file=sys.stderr, flush=True)
    print(json.dumps(rows, indent=2) if options.json else _table(rows))


if __name__ == "__main__":
    main()
