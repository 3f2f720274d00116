"""The settings of training that a base and a GPU suggest, each with its source; configs/sizes/ carries them."""

from __future__ import annotations

from collections.abc import Iterator

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.core.config import NightConfig
from clawpipe.core.config.load import with_settings
from clawpipe.core.config.rates import rate_for
from clawpipe.core.config.training import Lora
from clawpipe.model.planning.architecture import Architecture
from clawpipe.model.planning.hardware import Device
from clawpipe.model.planning.plan import estimate

_LONGEST, _MOST_ROWS = 4096, 64  # tokens of a row, rollouts of a shard: beyond these more is no faster
_LENGTHS, _SHARDS = ("train.pack_tokens", "curation.max_tokens"), ("rollouts.shard_rollouts",)
_STEPS = 4  # optimizer steps a round: those of the nights in docs/benchmarks.md


def suggested(config: NightConfig, model: Architecture, device: Device) -> JsonObject:
    """Return settings by dotted name.

    rank, alpha: the defaults, since LoRA's best rate and result hardly depend on the rank (Schulman et al. 2025, "LoRA without
    regret"). rate: `clawpipe.core.config.rates`. tokens and rollouts: the largest powers of two that fit the device by the estimate
    of `clawpipe.model.planning.memory`, with its error to spare. rows: a quarter of a round's rollouts an optimizer step.
    """
    chosen: JsonObject = {"train.lora.rank": Lora().rank, "train.lora.alpha": Lora().alpha}
    chosen["train.learning_rate"] = rate_for(with_settings(config, chosen).train, model.hidden)
    for names, most in ((_LENGTHS, min(_LONGEST, model.context)), (_SHARDS, _MOST_ROWS)):
        levels = (dict.fromkeys(names, size) for size in _powers(most))
        chosen |= next((level for level in levels if _fits(with_settings(config, chosen | level), model, device)), {})
    if config.rollouts:
        chosen["train.batch_rows"] = config.rollouts.items * config.rollouts.group_size // _STEPS
    return chosen


def _powers(most: int) -> Iterator[int]:
    """Yield the powers of two up to `most`, the largest first."""
    return (1 << bits for bits in reversed(range(most.bit_length())))


def _fits(config: NightConfig, model: Architecture, device: Device) -> bool:
    found = estimate(config, model, device)
    return all(found.verdict(phase) == "fits" for phase in found.phases)
