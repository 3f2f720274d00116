"""The rooms of the project and the arrows between them, as its imports draw them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).parents[1]
ALONE = ("cli", "flows", "tasks")  # storeys without rooms
STOREYS = (*ALONE, "start", "serve", "record", "learn", "play", "model", "data", "core")  # from the top
FILES = {path for top in ("clawpipe", "flows", "tasks") for path in (ROOT / top).rglob("*.py")}
MODULES = {path: ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__") for path in FILES}
_NAMES = frozenset(MODULES.values())

Arrows = dict[str, set[str]]  # from what imports to what is imported


def room_of(module: str) -> str:
    """Return the folder that a module lies in, below `clawpipe`: `core/store`, `cli`; a module in `clawpipe` itself is a room."""
    parts = module.split(".")
    if parts[0] != "clawpipe":
        return parts[0]
    return "/".join(parts[1 : 2 if parts[1:2] == ["cli"] else 3])


def storey_of(room: str) -> str:
    return room.partition("/")[0]


def by_room() -> Arrows:
    arrows: Arrows = {}
    for path, module in MODULES.items():
        room = room_of(module)
        arrows.setdefault(room, set()).update({room_of(name) for name in imported(path)} - {room})
    return arrows


def by_storey() -> Arrows:
    """Without the modules that lie in `clawpipe` itself."""
    arrows: Arrows = {storey: set() for storey in STOREYS}
    for room, others in by_room().items():
        if (storey := storey_of(room)) in arrows:
            arrows[storey] |= {storey_of(other) for other in others} & set(STOREYS) - {storey}
    return arrows


def rooms() -> Iterator[tuple[str, list[str]]]:
    """Yield each storey from the top, with its rooms: each imports only rooms after it."""
    arrows = by_room()
    order = list(TopologicalSorter({room: sorted(arrows[room]) for room in sorted(arrows)}).static_order())[::-1]
    for storey in STOREYS:
        yield (
            storey,
            [room for room in order if storey_of(room) == storey and (room != storey or storey in ALONE)],
        )


def first_line(room: str) -> str:
    """Return the first paragraph of a room's docstring."""
    place = ROOT / room if room in ("flows", "tasks") else ROOT / "clawpipe" / room
    text = ast.get_docstring(ast.parse((place / "__init__.py").read_text(encoding="utf-8"))) or ""
    return text.split("\n\n")[0].replace("\n", " ")


def imported(path: Path, types: bool = True) -> set[str]:
    """Return the modules of this project that a file imports; `types`: with those that are imported for their types alone."""
    return names_in(path, types) & _NAMES


@cache
def names_in(path: Path, types: bool = True) -> set[str]:
    """Return every name that a file imports, wherever the import stands."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    blocks = [node for node in ast.walk(tree) if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"]
    left_out = set() if types else {node for block in blocks for node in ast.walk(block)}
    names = set()
    for node in set(ast.walk(tree)) - left_out:
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return names
