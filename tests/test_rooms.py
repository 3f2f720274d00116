"""Rooms of the house: imports point one way, so that a room can be read without those above it."""

from __future__ import annotations

import ast
import re
from graphlib import TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).parents[1]
FILES = {path for top in ("clawpipe", "flows", "tasks") for path in (ROOT / top).rglob("*.py")}
MODULES = {path: ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__") for path in FILES}


def test_no_room_imports_one_that_imports_it():
    """`prepare` raises CycleError, which names the rooms."""
    arrows: dict[str, set[str]] = {}
    for path, module in MODULES.items():
        arrows.setdefault(_room(module), set()).update(map(_room, _imported(path)))
    TopologicalSorter({room: others - {room} for room, others in arrows.items()}).prepare()


def test_no_file_imports_one_that_imports_it():
    """Wherever the import stands: one in a function hides the circle from Python, not from a reader."""
    arrows = {module: _imported(path, types=False) - {module} for path, module in MODULES.items()}
    TopologicalSorter(arrows).prepare()


def test_the_layout_page_quotes_the_docstring_of_every_room():
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    for init in sorted((ROOT / "clawpipe").glob("*/__init__.py")):
        first = (ast.get_docstring(ast.parse(init.read_text(encoding="utf-8"))) or "").split("\n\n")[0].replace("\n", " ")
        assert f"| `{init.parent.name}` | {first} |" in page


def test_rooms_import_only_rooms_below_them_on_the_page():
    order = re.findall(r"^\| `(\w+)` \|", (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8"), re.MULTILINE)
    place = {f"clawpipe.{name}" if (ROOT / "clawpipe" / name).is_dir() else name: number for number, name in enumerate(order)}
    arrows = {(_room(module), _room(name)) for path, module in MODULES.items() for name in _imported(path)}
    upwards = {(one, other) for one, other in arrows if one in place and other in place and place[one] > place[other]}
    assert upwards == set()


def test_every_room_has_tests_of_its_own():
    rooms = {init.parent.name for init in (ROOT / "clawpipe").glob("*/__init__.py")} | {"flows", "tasks"}
    assert {room for room in rooms if not list((ROOT / "tests" / room).rglob("test_*.py"))} == set()


def test_files_that_run_first_or_together_are_there():
    from tests.conftest import LONGEST, TOGETHER

    named = {*LONGEST, *(file for files in TOGETHER for file in files)}
    assert {file for file in named if not (ROOT / "tests" / file).exists()} == set()


def test_only_flows_and_tasks_import_prefect():
    found = {module for path, module in MODULES.items() if any(name.split(".")[0] == "prefect" for name in _names(path))}
    assert {module for module in found if module.startswith("clawpipe.") and not module.startswith("clawpipe.cli.")} == set()


def test_names_of_tests_have_at_most_60_characters():
    names = {
        name for file in (ROOT / "tests").rglob("*.py") for name in re.findall(r"def (test_\w+)", file.read_text(encoding="utf-8"))
    }
    assert {name for name in names if len(name) > 60} == set()


def _room(module: str) -> str:
    """The folder below clawpipe; what lies in clawpipe itself is a room each."""
    return ".".join(module.split(".")[: 2 if module.startswith("clawpipe") else 1])


def _imported(path: Path, types: bool = True) -> set[str]:
    """Modules of this project; `types`: with those that are imported for their types alone."""
    return {name for name in _names(path, types) if name in MODULES.values()}


def _names(path: Path, types: bool = True) -> set[str]:
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
