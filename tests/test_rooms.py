"""Rooms of the house: imports point one way, so that a room can be read without those above it."""

from __future__ import annotations

import re
import sys
from graphlib import TopologicalSorter

import pytest

sys.path.insert(0, "docs")
layout = pytest.importorskip("layout")
MODULES, ROOT = layout.MODULES, layout.ROOT


def test_no_room_imports_one_that_imports_it():
    """`prepare` raises CycleError, which names the rooms."""
    TopologicalSorter(layout.by_room()).prepare()


def test_no_file_imports_one_that_imports_it():
    """Wherever the import stands: one in a function hides the circle from Python, not from a reader."""
    TopologicalSorter({module: layout.imported(path, types=False) - {module} for path, module in MODULES.items()}).prepare()


@pytest.mark.parametrize("storey", layout.STOREYS)
def test_a_storey_imports_only_storeys_below_it(storey):
    assert layout.by_storey()[storey] <= set(layout.STOREYS[layout.STOREYS.index(storey) + 1 :])


def test_a_stranger_finds_few_entries_on_each_storey():
    storeys = [storey for storey in layout.STOREYS if storey not in layout.ALONE]
    folders = [ROOT / "clawpipe", *(ROOT / "clawpipe" / storey for storey in storeys)]
    entries = {folder.name: [init.parent.name for init in folder.glob("*/__init__.py")] for folder in folders}
    assert {name: inside for name, inside in entries.items() if len(inside) > 9} == {}


def test_every_room_has_tests_of_its_own():
    rooms = {room.rpartition("/")[2] for _, inside in layout.rooms() for room in inside}
    assert {room for room in rooms if not list((ROOT / "tests" / room).rglob("test_*.py"))} == set()


def test_files_that_run_first_or_together_are_there():
    from tests.conftest import LONGEST, TOGETHER

    named = {*LONGEST, *(file for files in TOGETHER for file in files)}
    assert {file for file in named if not (ROOT / "tests" / file).exists()} == set()


def test_only_flows_and_tasks_import_prefect():
    found = {module for path, module in MODULES.items() if any(name.split(".")[0] == "prefect" for name in layout.names_in(path))}
    assert {module for module in found if module.startswith("clawpipe.") and not module.startswith("clawpipe.cli.")} == set()


def test_names_of_tests_have_at_most_60_characters():
    names = {
        name for file in (ROOT / "tests").rglob("*.py") for name in re.findall(r"def (test_\w+)", file.read_text(encoding="utf-8"))
    }
    assert {name for name in names if len(name) > 60} == set()
