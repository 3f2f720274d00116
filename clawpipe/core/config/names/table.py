"""One table of the names of other systems: settings, commands, variables, headers and metrics, and what they are called here.

A line of a system's table is `name | targets | note`. Targets are separated by commas: settings of a night, `clawpipe ...`
commands, `$VARIABLE`, pages of docs (`x.md`), or `-` where there is no such thing here, which the note explains.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Literal

from clawpipe.core.config.names import hermes, machines, monoclaw, openclaw_rl, tinker, trainers

SYSTEMS = {
    "OpenClaw-RL": openclaw_rl.TABLE,
    "Hermes and Atropos": hermes.TABLE,
    "MonoClaw": monoclaw.TABLE,
    "Tinker": tinker.TABLE,
    "TRL": trainers.TRL,
    "axolotl": trainers.AXOLOTL,
    "verl": trainers.VERL,
    "slime": trainers.SLIME,
    "machines and hubs": machines.TABLE,
}
Kind = Literal["setting", "command", "variable", "page"]
_WORD = re.compile(r"[^a-z0-9]+")
_LONGEST = 200  # characters of a name that is looked up


@dataclass(frozen=True)
class Known:
    """A name of another system. `targets` is empty where there is no such thing here."""

    system: str
    name: str
    targets: tuple[str, ...]
    note: str

    def __str__(self) -> str:
        is_ = " and ".join(self.targets) if self.targets else "not here"
        return f"{self.system}'s {self.name} is {is_}" + (f" ({self.note})" if self.note else "")


def kind_of(target: str) -> Kind:
    """Return what a target is, by how it is written."""
    if target.startswith("clawpipe"):
        return "command"
    return "variable" if target.startswith("$") else "page" if target.endswith(".md") else "setting"


@cache
def names() -> tuple[Known, ...]:
    """Every known name, by system."""
    return tuple(known for system, table in SYSTEMS.items() for known in _rows(system, table))


def _rows(system: str, table: str) -> Iterator[Known]:
    for line in table.strip().splitlines():
        name, targets, note = (part.strip() for part in line.split("|", 2))
        yield Known(system, name, () if targets == "-" else tuple(targets.split(", ")), note)


def meanings(asked: str) -> list[Known]:
    """Return what a name is in each system: the whole name, a command's beginning, or the last part of a dotted name."""
    asked = asked[:_LONGEST]
    plain = _plain(asked)
    exact = [known for known in names() if _plain(known.name) == plain]
    if exact or not plain:
        return exact
    begun = [known for known in names() if " " in known.name and plain.startswith(f"{_plain(known.name)} ")]
    return begun or [known for known in names() if "." in known.name and _plain(known.name.rpartition(".")[2]) == plain]


def near(asked: str) -> list[str]:
    """Return the known names that are most like a name."""
    by_plain = {_plain(known.name): known.name for known in names()}
    return [by_plain[one] for one in difflib.get_close_matches(_plain(asked[:_LONGEST]), by_plain, 3)]


def _plain(name: str) -> str:
    return _WORD.sub(" ", name.lower()).strip()
