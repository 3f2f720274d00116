"""Estimate from shapes how much memory a night's processes need at their peak. All sizes in bytes; no heavy import.

Counts follow what autograd keeps for a Llama layer in transformers 5.23 under SDPA with an explicit mask; benchmarks/memory.py
compares them with measured peaks. T is tokens of a pack, H hidden, Q = heads * head size, I intermediate, V vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass

from clawpipe.core.config import NightConfig
from clawpipe.core.config.training import Lora
from clawpipe.model.planning.architecture import Architecture
from clawpipe.model.planning.targets import is_target

Parts = dict[str, float]

GIB = 1 << 30
HEAD_CHUNK = 256  # positions per chunk of logits; see clawpipe.learn.training.model.scoring_head
_WIDTH = {"float32": 4, "bfloat16": 2}
_LINEAR_WIDTH = {  # bytes per weight, including scales
    "nf4": 0.5 + 1 / 64 + 4 / (64 * 256),  # an 8-bit scale per block of 64, a float32 scale per 256 blocks
    "int8": 1.0,
    "int8-torchao": 1.0,
    "fp8": 1.0,
    "int4-torchao": 0.5 + 4 / 128,  # bfloat16 scale and zero point per group of 128
}
_LOGIT_COPIES = 5  # logits, the gather's gradient and three temporaries of log-sum-exp
_SAMPLING_WIDTH = 4 + 4 + 4 + 8 + 8  # bytes per logit while a token is sampled: logits, log-probs, probabilities, sums in double
_PROMPT = 512  # assumed tokens of system message, tools, examples and question, which only the environment knows
_NEW_TOKENS = 256  # tokens that a row reads at once: a question, or a tool's result
_SCORE_COPIES = 3  # float32 attention scores: masked, joined with the prefix's, normalised
_LIBRARIES = {"cpu": 0.5 * GIB, "gpu": 0.75 * GIB}  # Python and torch; on a GPU the CUDA context, kernels and cuBLAS workspaces
_SCRATCH = 24 << 20  # workspace of the CPU's matrix library


@dataclass(frozen=True)
class Phase:
    """A step at its peak.

    Attributes:
        moment: when in the step the peak is.
        parts: bytes of one process, by purpose.
        processes: number of such processes that share the device's memory.
        idle: bytes that the night's other processes hold at that time.
    """

    name: str
    moment: str
    parts: Parts
    processes: int = 1
    idle: float = 0.0

    @property
    def bytes(self) -> float:
        return sum(self.parts.values()) * self.processes + self.idle


def weights(model: Architecture, config: NightConfig) -> tuple[float, float]:
    """Return the bytes of the base's linear modules, and of the rest (embedding, head, norms), which is never quantized.

    A weight has w bytes: 4 in float32, 2 in bfloat16; a quantized one `_LINEAR_WIDTH`, with its share of the scales.
    """
    width = _WIDTH[config.model.dtype]
    return model.linear_parameters * _LINEAR_WIDTH.get(config.model.quantization, width), model.other_parameters * width


def lora_parameters(model: Architecture, lora: Lora) -> int:
    """Return the weights of an adapter: rank * (in + out) per module, and with DoRA a magnitude per output."""
    magnitude = lora.variant == "dora"
    each = (lora.rank * (rows + columns) + magnitude * columns for rows, columns in _targets(model, lora).values())
    return model.layers * sum(each)


def training(model: Architecture, config: NightConfig, kind: str, *, tokens: int = 0, sharded: bool = False) -> Phase:
    """Return the trainer's peak in any optimizer step after the first, with more than one pack per step.

    Args:
        kind: kind of the device, cpu or gpu.
        tokens: tokens of the pack; 0 takes train.pack_tokens.
        sharded: whether each of runtime.train_processes holds a part of the weights, gradients and moments (FSDP, ZeRO-3).
    """
    tokens = tokens or config.train.pack_tokens
    processes = config.runtime.train_processes
    shards = processes if sharded else 1
    parts = _resident(model, config, shards)
    if processes > 1 and not sharded:
        parts["gradient buckets"] = float(_trained(model, config) * _gradient_width(config))
    parts["attention mask"] = tokens**2 * (_WIDTH[config.model.dtype] + 1.0)
    moment, more = _fullest(model, config, kind, tokens, shards)
    parts |= more
    parts["libraries"] = _LIBRARIES[kind]
    return Phase("train", moment, parts, processes if kind == "cpu" else 1)


def generation(model: Architecture, config: NightConfig, kind: str, workers: int) -> Phase:
    """Return the peak of a generation worker, when all its rows have had their last turn.

    The lengths of prompts and tool results depend on the environment; see `row_tokens`.

    Args:
        kind: kind of the device, cpu or gpu.
        workers: processes that share the device.
    """
    assert config.rollouts
    rows, width = config.rollouts.shard_rollouts, _WIDTH[config.model.dtype]
    length = row_tokens(model, config)
    key_values = 2 * model.kv_heads * model.head_size * width
    linear, rest = weights(model, config)
    parts = {
        "base weights": linear + rest,
        "adapter": lora_parameters(model, config.train.lora) * 4.0 if config.train.adapter == "lora" else 0.0,
        "KV cache": float(rows * length * key_values * model.layers),
        "attention scores": rows * model.heads * min(_NEW_TOKENS, length) * length * 4.0 * _SCORE_COPIES,
        "hidden states": rows * min(_NEW_TOKENS, length) * (2 * model.intermediate + 4 * model.hidden) * float(width),
        "logits": float(rows * model.vocabulary * _SAMPLING_WIDTH),
        "dequantised weights": _dequantized(model, config),
        "libraries": _LIBRARIES[kind],
    }
    return Phase("generate", f"{rows} rows of {length} tokens", {name: size for name, size in parts.items() if size}, workers)


def row_tokens(model: Architecture, config: NightConfig) -> int:
    """Return the tokens of a finished rollout with a prompt of 512 tokens and a tool result of 256 after each turn."""
    assert config.rollouts
    turns = config.rollouts.max_turns * (config.rollouts.max_new_tokens + _NEW_TOKENS)
    return min(_PROMPT + turns, config.curation.max_tokens, model.context)


def _targets(model: Architecture, lora: Lora) -> dict[str, tuple[int, int]]:
    return {name: shape for name, shape in model.linears.items() if is_target(lora.target_modules, f"model.layers.0.{name}")}


def _trained(model: Architecture, config: NightConfig) -> int:
    """Return the number of trained weights. Gradients, moments and adapters are float32, whatever the base's dtype."""
    return model.parameters if config.train.adapter == "full" else lora_parameters(model, config.train.lora)


def _has_masters(config: NightConfig) -> bool:
    """Return whether the optimizer holds float32 copies of the weights: see clawpipe.learn.training.trainers.optimizer."""
    return config.train.adapter == "full" and config.model.dtype != "float32"


def _gradient_width(config: NightConfig) -> int:
    """Return bytes per gradient: several processes exchange gradients in the weights' dtype."""
    return _WIDTH[config.model.dtype] if _has_masters(config) and config.runtime.train_processes > 1 else 4


def _resident(model: Architecture, config: NightConfig, shards: int) -> Parts:
    """Return the bytes that stay from step to step, by purpose.

    For P trained weights: adapter 4 P (LoRA), master weights 4 P (if the base is trained below float32), gradients 4 P (w P if
    several processes exchange them in the weights' dtype), AdamW's two moments 8 P; each divided by the number of shards. Quantized
    modules are not sharded, because their packed weights cannot be split.
    """
    linear, rest = weights(model, config)
    trained = _trained(model, config)
    whole = shards == 1 or config.model.quantization != "none"
    parts = {"base weights": (linear if whole else linear / shards) + rest / shards}
    if config.train.adapter == "lora":
        parts["adapter"] = trained * 4 / shards
    if _has_masters(config):
        parts["float32 master weights"] = trained * 4 / shards
    parts |= {"gradients": trained * _gradient_width(config) / shards, "optimiser state": 2.0 * trained * 4 / shards}
    if shards > 1:  # two layers, embedding and head are gathered while they compute
        parts["gathered weights"] = (0 if whole else 2 * linear / model.layers) + rest
    return parts


def _fullest(model: Architecture, config: NightConfig, kind: str, tokens: int, shards: int) -> tuple[str, Parts]:
    """Return the peak of an optimizer step and its parts: the head's backward pass, a layer's, or the optimizer's update."""
    layer = _activations_of_a_layer(model, config) * tokens
    width = _WIDTH[config.model.dtype]
    if config.train.gradient_checkpointing:
        kept, again = model.hidden * width * tokens * model.layers, layer
    else:
        kept, again = layer * model.layers, 0.0
    kept += tokens * model.hidden * (width + 4)  # the last norm, and what the head reads
    passing = again + tokens * (3 * model.intermediate + 2 * model.hidden) * width
    passing += _dequantized(model, config) + _dora(model, config)
    moments = {
        "the head's backward pass": {"activations": kept, "logits": _head(model, config)},
        "a layer's backward pass": {"activations": kept, "one layer at work": passing},
        "the optimizer's step": {"optimiser at work": _step(model, config, kind) / shards},
    }
    if kind == "cpu":
        moments = {name: parts | {"matrix library": float(_SCRATCH)} for name, parts in moments.items()}
    moment = max(moments, key=lambda name: sum(moments[name].values()))
    return moment, moments[moment]


def _activations_of_a_layer(model: Architecture, config: NightConfig) -> float:
    """Return the bytes per token that autograd keeps of one layer.

    With w bytes per activation: 8 H (the inputs of both norms in float32) + 4 Q w (queries, repeated keys and values, attention's
    output) + 3 I w (gate, its activation, up) + 4 heads (attention's log-sum-exp in float32). Full training adds (4 H + I) w. LoRA
    of rank R adds 4 R per module, and the inputs of the trained modules: once for modules that share them in float32; below float32
    one copy of 4 bytes per element for each module, to which peft casts it. DoRA adds (4 + w) out per module, and int8 2 in per
    linear module.
    """
    width, query = _WIDTH[config.model.dtype], model.heads * model.head_size
    kept = 2 * model.hidden * 4 + (4 * query + 3 * model.intermediate) * width + model.heads * 4
    if config.train.adapter == "full":
        return kept + (4 * model.hidden + model.intermediate) * width  # norms' outputs twice: before and after their weight
    targets = _targets(model, config.train.lora)
    kept += 4 * config.train.lora.rank * len(targets)
    if config.train.lora.variant == "dora":
        kept += sum(columns for _, columns in targets.values()) * (4 + width)  # outputs of the base and of the adapter
    if config.model.quantization == "int8":
        kept += sum(rows for rows, _ in model.linears.values()) * 2  # inputs in float16
    if width < 4:
        return kept + 4 * sum(rows for rows, _ in targets.values())
    readers = {name.split(".")[1] for name in targets}
    shared = {"q_proj k_proj v_proj": model.hidden, "gate_proj up_proj": model.hidden, "down_proj": model.intermediate}
    return kept + 4 * sum(size for names, size in shared.items() if readers & set(names.split()))


def _head(model: Architecture, config: NightConfig) -> float:
    """Return the bytes of the head's backward pass: 256 positions x V x (5 copies of 4 bytes; plus w if w < 4), and w V H for the
    gradient of a trained head before it is accumulated."""
    width = _WIDTH[config.model.dtype]
    raw = width if width < 4 else 0
    gradient = model.vocabulary * model.hidden * width if config.train.adapter == "full" else 0
    return HEAD_CHUNK * model.vocabulary * (4.0 * _LOGIT_COPIES + raw) + gradient


def _step(model: Architecture, config: NightConfig, kind: str) -> float:
    """Return the bytes of AdamW's temporaries: 4 per trained weight on a GPU, which updates all tensors at once; else (on a CPU, or
    with master weights) two float32 copies of the largest tensor: max(V, I) H weights, or rank x max(I, H) of an adapter."""
    if kind == "gpu" and not _has_masters(config):
        return _trained(model, config) * 4.0
    if config.train.adapter == "full":
        return 2.0 * max(model.vocabulary, model.intermediate) * model.hidden * 4
    return 2.0 * config.train.lora.rank * max(model.intermediate, model.hidden) * 4


def _dequantized(model: Architecture, config: NightConfig) -> float:
    """Return the bytes of the largest quantized matrix while it is unpacked for a product: w I H."""
    if config.model.quantization == "none":
        return 0.0
    return float(model.intermediate * model.hidden * _WIDTH[config.model.dtype])


def _dora(model: Architecture, config: NightConfig) -> float:
    """Return the bytes with which peft computes the norm of a weight with its update, in float32: an identity matrix [in, in], and
    three matrices [in, out]; the largest module counts."""
    if config.train.adapter == "full" or config.train.lora.variant != "dora":
        return 0.0
    return 4.0 * max((rows * (rows + 3 * columns) for rows, columns in _targets(model, config.train.lora).values()), default=0)
