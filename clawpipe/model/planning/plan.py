"""Decide whether a night fits a device, and find the cheapest change that makes it fit."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import yaml
from rich.console import Group, RenderableType
from rich.constrain import Constrain
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.core.basics.plain_yaml import parse_yaml
from clawpipe.core.config import NightConfig
from clawpipe.core.config.load import shipped, with_settings
from clawpipe.errors import ConfigError
from clawpipe.model.planning.architecture import Architecture
from clawpipe.model.planning.hardware import Device
from clawpipe.model.planning.memory import GIB, Phase, generation, training, weights

Settings = JsonObject
Verdict = Literal["fits", "tight", "too large"]
ERROR = 0.2  # largest relative error of the estimate in the measurements
FSDP = "configs/accelerate/fsdp2.yaml"
_LEAST_PACK, _LEAST_ROWS = 256, 4
_WIDTH = 80
_COLOURS = {"fits": "green", "tight": "yellow", "too large": "bold red"}


@dataclass(frozen=True)
class Estimate:
    """Phases of a night on a device; `changes` are settings that make it fit, None if no known ones do. `longest_row` is
    the training of a row as long as may be; None where a service trains."""

    model: Architecture
    device: Device
    phases: tuple[Phase, ...]
    changes: Settings | None
    longest_row: Phase | None

    def verdict(self, phase: Phase) -> Verdict:
        """Return whether a phase fits; `tight` if it fits by less than the estimate's error."""
        if phase.bytes > self.device.bytes:
            return "too large"
        return "tight" if phase.bytes * (1 + ERROR) > self.device.bytes else "fits"


def estimate(config: NightConfig, model: Architecture, device: Device) -> Estimate:
    """Estimate what the night needs of `device`.

    Raises:
        ConfigError: runtime.accelerate names a file that cannot be read.
    """
    phases = phases_of(config, model, device)
    fits = all(phase.bytes <= device.bytes for phase in phases)
    changes = {} if fits else cheapest(config, model, device)
    return Estimate(model, device, phases, changes, _longest_row(config, model, device))


def _longest_row(config: NightConfig, model: Architecture, device: Device) -> Phase | None:
    tokens = max(config.train.pack_tokens, config.curation.max_tokens)
    here = config.train.backend.is_local
    return training(model, config, device.kind, tokens=tokens, sharded=is_sharded(config)) if here else None


def phases_of(config: NightConfig, model: Architecture, device: Device) -> tuple[Phase, ...]:
    """Return the phases with large memory: generation, if the night has any, and training, unless a service trains."""
    trains_here = config.train.backend.is_local
    workers = _workers(config, device)
    generate = generation(model, config, device.kind, workers) if config.rollouts else None
    if not trains_here:
        return (generate,) if generate else ()
    train = training(model, config, device.kind, sharded=is_sharded(config))
    if generate is None:
        return (train,)
    if device.kind == "cpu":  # workers keep their policy while the trainer runs; on a GPU they end first
        idle = workers * (sum(weights(model, config)) + generate.parts["libraries"])
        train = Phase(train.name, train.moment, train.parts, train.processes, idle)
    return (generate, train)


def is_sharded(config: NightConfig) -> bool:
    """Return whether runtime.accelerate shards the weights over the training processes.

    Raises:
        ConfigError: the file cannot be read.
    """
    file = config.runtime.accelerate
    if file is None or config.runtime.train_processes == 1:
        return False
    return distributed_by(file) in ("FSDP", "DEEPSPEED")


def distributed_by(file: str) -> str:
    """Return the kind of distribution that an accelerate config names.

    Raises:
        ConfigError: the file cannot be read.
    """
    try:
        return str(parse_yaml(shipped(Path(file)).read_text(encoding="utf-8"))["distributed_type"])
    except (OSError, ValueError, KeyError, TypeError, yaml.YAMLError) as error:
        raise ConfigError(f"no usable accelerate config: {error}", file, "the shipped ones lie in configs/accelerate/") from None


def cheapest(config: NightConfig, model: Architecture, device: Device) -> Settings | None:
    """Return the cheapest settings, by dotted name, with which every phase fits `device`; None if no known change suffices.

    Greedy: the levers of `_levers`, cheapest first, are applied at full strength until every phase needs at most the bytes of the
    device. Then each, from the most expensive on, is weakened to its mildest level with which the night still fits. Combinations of
    settings that the config refuses count as not fitting.
    """

    def fits(levels: Sequence[Settings]) -> bool:
        wanted = {name: value for level in levels for name, value in level.items()}
        try:
            changed = with_settings(config, wanted)
        except ConfigError:  # the settings contradict each other
            return False
        return all(phase.bytes <= device.bytes for phase in phases_of(changed, model, device))

    levers = list(_levers(config, device))
    pulled: list[Settings] = []
    for lever in levers:
        pulled.append(lever[-1])
        if fits(pulled):
            break
    else:
        return None
    for number in reversed(range(len(pulled))):
        weaker = ([*pulled[:number], level, *pulled[number + 1 :]] for level in ({}, *levers[number]))
        pulled = next(levels for levels in weaker if fits(levels))
    return {name: value for level in pulled for name, value in level.items()}


def _levers(config: NightConfig, device: Device) -> Iterator[list[Settings]]:
    """Yield the possible changes, cheapest first; each is a list of levels, mildest first."""
    packs = list(_halves("train.pack_tokens", config.train.pack_tokens, _LEAST_PACK))
    rows = list(_halves("rollouts.shard_rollouts", config.rollouts.shard_rollouts, _LEAST_ROWS)) if config.rollouts else []
    kinds: list[list[Settings]] = [packs, rows]
    if not config.train.gradient_checkpointing:
        kinds.append([{"train.gradient_checkpointing": True}])
    if config.model.dtype == "float32" and device.kind == "gpu":
        kinds.append([{"model.dtype": "bfloat16"}])
    if config.train.adapter == "full":
        kinds.append([{"train.adapter": "lora"}])
    if config.model.quantization == "none":
        kinds.append([{"model.quantization": "int8-torchao"}, {"model.quantization": "nf4"}])
    if device.kind == "gpu" and config.runtime.train_processes == 1:
        kinds.append([{"runtime.train_processes": count, "runtime.accelerate": FSDP} for count in (2, 4, 8)])
    return (levels for levels in kinds if levels)


def _halves(name: str, value: int, least: int) -> Iterator[Settings]:
    while (value := value // 2) >= least:
        yield {name: value}


def _workers(config: NightConfig, device: Device) -> int:
    """Return the number of generation processes that share a device's memory: see clawpipe.play.workers.pool."""
    if device.kind == "cpu":
        return config.runtime.workers or min(os.cpu_count() or 1, 2)
    return max(-(-config.runtime.workers // device.count), 1)


def as_dict(found: Estimate) -> Mapping[str, Any]:
    """Return the estimate as `--json` prints it; sizes in bytes."""
    device = found.device
    return {
        "model": {"name": found.model.name, "parameters": found.model.parameters},
        "device": {"name": device.name, "kind": device.kind, "bytes": int(device.bytes), "count": device.count},
        "phases": {phase.name: _phase(found, phase) for phase in found.phases},
        "longest_row": _phase(found, found.longest_row) if found.longest_row else None,
        "fits": all(found.verdict(phase) != "too large" for phase in found.phases),
        "changes": found.changes,
    }


def _phase(found: Estimate, phase: Phase) -> JsonObject:
    return {
        "verdict": found.verdict(phase),
        "bytes": int(phase.bytes),
        "moment": phase.moment,
        "processes": phase.processes,
        "idle_bytes": int(phase.idle),
        "parts": {name: int(size) for name, size in phase.parts.items()},
    }


def hardware_table(found: Estimate) -> RenderableType:
    """Draw a table of what each phase holds at its peak, whether it fits, and what would make it fit."""
    title = f"{found.model.name}: {found.model.parameters / 1e9:.2f} billion weights on {_device(found)}"
    phases = [part for phase in found.phases for part in (_phase_table(found, phase), "")]
    return Constrain(Group(Rule(Text(title), align="left", style="dim"), *phases, Text("\n".join(_closing(found)))), _WIDTH)


def _device(found: Estimate) -> str:
    count = f"{found.device.count} x " if found.device.count > 1 else ""
    return f"{count}{found.device.name} ({found.device.bytes / GIB:.1f} GiB)"


def _phase_table(found: Estimate, phase: Phase) -> Table:
    each = f", each of {phase.processes} processes" if phase.processes > 1 else ""
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold")
    table.add_column(f"{phase.name}: {phase.moment}{each}", width=58, no_wrap=True)
    table.add_column("GiB", justify="right")
    for name, size in phase.parts.items():
        table.add_row(f"  {name}", _gib(size))
    if phase.processes > 1:
        table.add_row(f"  the other {phase.processes - 1}", _gib(sum(phase.parts.values()) * (phase.processes - 1)))
    if phase.idle:
        table.add_row("  generation workers, waiting", _gib(phase.idle))
    verdict = found.verdict(phase)
    table.add_row(Text.assemble("  together: ", (verdict, _COLOURS[verdict])), _gib(phase.bytes))
    return table


def _gib(size: float) -> str:
    return f"{size / GIB:.2f}"


def _closing(found: Estimate) -> list[str]:
    longest, device = found.longest_row.bytes if found.longest_row else 0, found.device.bytes
    lines = [f"Estimates; at most {ERROR:.0%} off where measured."]
    if longest > device:
        lines.append(
            f"A row as long as curation.max_tokens allows would fill a pack alone and\ntake {_gib(longest)} GiB: lower it too."
        )
    if found.changes:
        overrides = [f"  -o {name}={_value(value)}" for name, value in found.changes.items()]
        lines += ["The cheapest change that makes it fit:", *overrides]
    elif found.changes is None:
        lines.append("No setting known here makes it fit: take a smaller model, or a larger device.")
    return lines


def _value(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
