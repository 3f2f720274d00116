"""The names that tests have in files of tasks, by who wrote them: each project's own runner.

- pytest: `tests/test_a.py::TestB::test_c[x]`. Some data sets cut it at the first space of its parameters.
- unittest, as Django has it: `test_c (a.test_a.TestB)`, from Python 3.11 on `test_c (a.test_a.TestB.test_c)`.
- anything else is a name alone: `test_c`, as SymPy has it; or the first line of a docstring, which unittest writes instead.
"""

from __future__ import annotations

import re
from pathlib import PurePosixPath
from typing import TypeAlias

Key: TypeAlias = tuple[str, str]  # class and name, as pytest's XML has them
_NODE = re.compile(r"([^:]+\.py)(::.+)+", re.DOTALL)
_UNITTEST = re.compile(r"(\w+) \(([\w.]+)\)")
_FILE = re.compile(r"(test_.*|.*_test|tests?)\.py")


def file_of(test: str) -> str | None:
    """Return the file that a test's name begins with; None: it names none."""
    found = _NODE.fullmatch(test)
    return found[1] if found else None


def key_of(test: str) -> Key:
    """Return a test's name as pytest's XML has it: tests/test_a.py::TestB::test_c[x] is (tests.test_a.TestB, test_c[x])."""
    path, bracket, parameters = test.partition("[")
    file, *classes, name = path.split("::")
    module = file.replace("/", ".").removesuffix(".py")
    return ".".join((module, *classes)), name + bracket + parameters


def stands_for(test: str, key: Key) -> bool:
    """Whether a name that names no file is that of a test. Its class may lack the folders that it lies in."""
    found = _UNITTEST.fullmatch(test)
    if not found:
        return key[1] == test
    place = found[2].removesuffix(f".{found[1]}")
    return key[1] == found[1] and f".{key[0]}".endswith(f".{place}")


def is_test_file(path: str) -> bool:
    """Whether a file has the name of a file of tests."""
    return bool(_FILE.fullmatch(PurePosixPath(path).name))


def leads_out(test: str) -> bool:
    """Whether the file of a test lies outside of the repository, or looks like an option."""
    path = file_of(test) or ""
    return path.startswith(("/", "-")) or ".." in path.split("/")
