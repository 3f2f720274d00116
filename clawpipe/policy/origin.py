"""How other tools find a policy's base model, and under which licence it is."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from clawpipe.policy.base import RANDOM, is_ready, resolve_base

_BUILT_IN = {"smollm2-135m-instruct": ("HuggingFaceTB/SmolLM2-135M-Instruct", "apache-2.0"), RANDOM: (RANDOM, "apache-2.0")}
_LICENCE = re.compile(r"^license:[ \t]*['\"]?([A-Za-z0-9.-]+)", re.MULTILINE)
_UNKNOWN_LICENCE = "other"


@dataclass(frozen=True)
class Origin:
    """Where a base model is from.

    Attributes:
        title: its public name: a hub id, or the name of its directory.
        location: what transformers and peft load it by: a hub id, or a directory of this machine.
        revision: commit of a hub model; None for a directory.
        licence: as its own model card names it; "other" where it names none.
    """

    title: str
    location: str
    revision: str | None
    licence: str


def origin_of(name: str) -> Origin | None:
    """The origin of a base model that is on this machine, else None."""
    if not is_ready(name):
        return None
    path = resolve_base(name).path
    if name in _BUILT_IN:  # converted here: the hub's own weights are others
        title, licence = _BUILT_IN[name]
        return Origin(title, str(path), None, licence)
    if not Path(name).expanduser().is_dir():
        return Origin(name, name, path.name, _licence(path))
    return Origin(path.name, str(path), None, _licence(path))


def _licence(path: Path) -> str:
    """From the front matter of the model card beside the weights."""
    try:
        front = (path / "README.md").read_text(encoding="utf-8", errors="replace").partition("---\n")[2].partition("\n---")[0]
    except OSError:
        return _UNKNOWN_LICENCE
    found = _LICENCE.search(front)
    return found[1] if found else _UNKNOWN_LICENCE
