"""The estimate for people, in at most 80 columns."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.constrain import Constrain
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from clawpipe.planning.memory import GIB, Phase
from clawpipe.planning.plan import ERROR, Estimate

_WIDTH = 80
_COLOURS = {"fits": "green", "tight": "yellow", "too large": "bold red"}


def hardware_table(found: Estimate) -> RenderableType:
    """What each phase holds at its fullest moment, whether that fits, and what would make it fit."""
    title = f"{found.model.name}: {found.model.parameters / 1e9:.2f} billion weights on {_device(found)}"
    phases = [part for phase in found.phases for part in (_phase(found, phase), "")]
    return Constrain(Group(Rule(Text(title), align="left", style="dim"), *phases, Text("\n".join(_closing(found)))), _WIDTH)


def _device(found: Estimate) -> str:
    count = f"{found.device.count} x " if found.device.count > 1 else ""
    return f"{count}{found.device.name} ({found.device.bytes / GIB:.1f} GiB)"


def _phase(found: Estimate, phase: Phase) -> Table:
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
    longest, device = found.longest_row.bytes, found.device.bytes
    lines = [f"Estimates; {ERROR:.0%} off at most where they were measured."]
    if longest > device:
        lines.append(
            f"A row as long as curation.max_tokens allows would be a pack of its own and\ntake {_gib(longest)} GiB: lower it too."
        )
    if found.changes:
        overrides = [f"  -o {name}={_value(value)}" for name, value in found.changes.items()]
        lines += ["The cheapest change that makes it fit:", *overrides]
    elif found.changes is None:
        lines.append("No setting known here makes it fit: take a smaller model, or a larger device.")
    return lines


def _value(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
