"""Write the tables of pages that the code knows: `python docs/tables.py`. A test compares them with the code."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import layout

from clawpipe.core.config.names.table import SYSTEMS, kind_of, names
from clawpipe.data.importers.formats.table import FORMATS

DOCS = Path(__file__).parent


def formats() -> Iterator[str]:
    """The formats of other programs, and what the shape of each was tried on."""
    yield from ("| `--format` | what it is | tried on |", "|---|---|---|")
    for name in sorted(FORMATS):
        if FORMATS[name].about:
            yield f"| `{name}` | {FORMATS[name].about} | {FORMATS[name].tried} |"


def named(system: str) -> Iterator[str]:
    """The names of another system, and what they are here."""
    yield from ("| name | here | |", "|---|---|---|")
    for known in names():
        if known.system == system:
            yield f"| `{known.name}` | {', '.join(map(_linked, known.targets)) or 'not here'} | {known.note} |"


def storeys() -> Iterator[str]:
    """Each storey with its rooms; an arrow is left out where a longer way leads to the same storey."""
    arrows = layout.by_storey()
    yield from ("```mermaid", "flowchart TD")
    for storey, inside in layout.rooms():
        label = " · ".join(room.rpartition("/")[2] for room in inside if room != storey)
        yield f'  {storey}["<b>{storey}</b>{"<br>" + label if label else ""}"]'
    for storey in layout.STOREYS:
        further = {last for other in arrows[storey] for last in _reached(arrows, other)}
        for other in layout.STOREYS:
            if other in arrows[storey] - further:
                yield f"  {storey} --> {other}"
    yield "```"


def _reached(arrows: layout.Arrows, storey: str) -> set[str]:
    return arrows[storey].union(*(_reached(arrows, other) for other in arrows[storey]))


def rooms() -> Iterator[str]:
    """Each room, from the top, with its docstring."""
    yield from ("| room | what it is for |", "|---|---|")
    for storey, inside in layout.rooms():
        if inside != [storey]:
            yield f"| **{storey}** | *{layout.first_line(storey)}* |"
        yield from (f"| `{room}` | {layout.first_line(room)} |" for room in inside)


def _linked(target: str) -> str:
    return f"[{target}]({target})" if kind_of(target) == "page" else f"`{target.removeprefix('$')}`"


def _mark(system: str) -> str:
    return system.lower().replace(" ", "-")


OWN_PAGES = {"OpenClaw-RL": "from-openclaw-rl.md", "Hermes and Atropos": "from-hermes.md", "MonoClaw": "from-monoclaw.md"}
TABLES: dict[tuple[str, str], Callable[[], Iterator[str]]] = {  # by page and mark
    ("inspect.md", "formats"): formats,
    ("architecture.md", "storeys"): storeys,
    ("architecture.md", "rooms"): rooms,
    **{(OWN_PAGES.get(system, "from-others.md"), _mark(system)): partial(named, system) for system in SYSTEMS},
}


def written(page: str, name: str, text: str) -> str:
    """Return the text of a page with its table as the code has it."""
    table = "\n".join(TABLES[page, name]())
    marked = re.compile(rf"(<!-- {name}:[^>]*-->\n).*?(<!-- /{name} -->)", re.DOTALL)
    return marked.sub(lambda found: f"{found[1]}\n{table}\n\n{found[2]}", text)


if __name__ == "__main__":
    for page, name in TABLES:
        (DOCS / page).write_text(written(page, name, (DOCS / page).read_text(encoding="utf-8")), encoding="utf-8")
