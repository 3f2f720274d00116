"""Faults that are planted: where each kind finds its place, and which ones count."""

from __future__ import annotations

import ast
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clawpipe.errors import ConfigError, DataError
from clawpipe.play.environments.faults.edits import KINDS, faults
from clawpipe.play.environments.faults.packages import PACKAGES, Package, packages_named, sdist, tree
from clawpipe.play.environments.faults.plant import plant
from clawpipe.play.environments.faults.write import write_tasks
from clawpipe.play.environments.swe.workbench import DEFAULT_PLACE
from tests.environments.swe.conftest import SOURCE, TESTS, needs_bubblewrap, opened  # noqa: F401  (a fixture)

FILES = {"tally/__init__.py": SOURCE.replace("<", ">").encode(), "tests/test_tally.py": TESTS.encode(), "README": b"\0"}


def edited(text: str, kind: str) -> list[str]:
    """Return what a function of one line becomes by faults of a kind."""
    found = faults(f"def f(a, b=0):\n{text}\n")
    return [one.source.split("\n", 1)[1].rstrip("\n") for one in found if one.kind == kind]


@pytest.mark.parametrize(
    ("kind", "text", "becomes"),
    [
        ("swapped comparison", " return a < b", [" return a <= b"]),
        ("swapped comparison", " return a is not b", [" return a is b"]),
        ("swapped comparison", " return a<b not in c", [" return a <= b not in c", " return a<b in c"]),
        ("swapped comparison", " return (a) < b", []),
        ("wrong operator", " return a + 1", [" return a - 1"]),
        ("wrong operator", " return 'x' % a", []),
        ("swapped connective", " return a and b or c", [" return a and b and c", " return a or b or c"]),
        ("off by one", " return a[1:b]", [" return a[2:b]"]),
        ("off by one", " return True, 1.0, 0x1f", []),
        ("removed branch", " if a:\n  b = 1\n return b", [" pass\n return b"]),
        ("removed branch", " if a:\n  b = 1\n else:\n  b = 2", []),
        ("negated condition", " return 1 if a else 2", [" return 1 if not a else 2"]),
        ("negated condition", " while not a():\n  pass", [" while a():\n  pass"]),
        ("swapped arguments", " return g(a, b, c=1)", [" return g(b, a, c=1)"]),
        ("swapped arguments", " return g(*a, b)", []),
        ("wrong function", " return a.lstrip('é').find(b)", [" return a.lstrip('é').rfind(b)", " return a.rstrip('é').find(b)"]),
        ("lost result", " return a", [" return None"]),
        ("lost result", " return None", []),
        ("lost statement", " a.append(b)", [" pass"]),
        ("lost statement", " a += b", [" pass"]),
        ("wrong jump", " for x in a:\n  break", [" for x in a:\n  continue"]),
    ],
)
def test_a_kind_of_fault_is_one_edit(kind: str, text: str, becomes: list[str]):
    assert edited(text, kind) == becomes


def test_defaults_are_those_of_the_function():
    found = faults("def f(a=True, *, b='x', c=2, d=None): ...\n")
    assert [one.source.split("(")[1].split(")")[0] for one in found if one.kind == "wrong default"] == [
        "a=False, *, b='x', c=2, d=None",
        "a=True, *, b=None, c=2, d=None",
        "a=True, *, b='x', c=3, d=None",
    ]


def test_a_fault_names_its_function_and_line():
    text = "class A:\n    def b(self):\n        def c():\n            return 1\n        return c\n\nX = 1 < 2\n"
    found = [(one.function, one.line) for one in faults(text) if one.kind == "lost result"]
    assert found == [("A.b", 4), ("A.b", 5)]
    assert {one.function for one in faults(text)} == {"A.b"}


@given(
    st.lists(
        st.sampled_from(
            [
                "x = a[1] + 2",
                "if a:\n        return 1",
                "return a.min(1, 2)",
                "for x in a:\n        continue",
                "é = 'é' in a",
                "y += 1",
            ]
        ),
        min_size=1,
    )
)
def test_every_fault_is_another_program(lines: list[str]):
    text = "def f(a, b=1):\n" + "".join(f"    {line}\n" for line in lines)
    found = faults(text)
    assert len({one.source for one in found} | {text}) == len(found) + 1
    for one in found:
        assert ast.dump(ast.parse(one.source)) != ast.dump(ast.parse(text))
        assert one.kind in KINDS


@pytest.mark.slow
def test_faults_count_where_some_tests_fail(needs_bubblewrap: None):  # noqa: F811
    package = tree("tally", "1", FILES, ["tally/*.py"], ["tests/test_*.py"])
    planted = list(plant(package, DEFAULT_PLACE, 0))
    assert {(one.fault.kind, one.fault.line) for one in planted} == {
        ("off by one", 2), ("off by one", 3), ("removed branch", 4), ("lost result", 6), ("lost result", 10),
    }  # fmt: skip
    for one in planted:
        assert len(one.fails) + len(one.passes) == 4
    assert {one.fault.function for one in planted[:2]} == {"largest", "total"}


@pytest.mark.slow
def test_written_tasks_are_equal_and_are_mended(tmp_path: Path, needs_bubblewrap: None):  # noqa: F811
    package = tree("tally", "1", FILES, ["tally/*.py"], ["tests/test_*.py"])
    one, two = (write_tasks(tmp_path / name, [package], DEFAULT_PLACE, 2, 0, print) for name in "ab")
    assert one.file.read_bytes() == two.file.read_bytes()
    rows = [json.loads(line) for line in one.file.read_text().splitlines()]
    assert [row["identity"] for row in rows] == sorted(
        {row["identity"] for row in rows}, key=[row["identity"] for row in rows].index
    )
    assert all("tests/test_tally.py::" in row["problem_statement"] for row in rows)
    assert opened(one.file).warnings() == []
    with pytest.raises(DataError, match="there are tasks already"):
        write_tasks(tmp_path / "a", [package], DEFAULT_PLACE, 2, 0, print)


def test_packages_are_pinned_and_named(tmp_path: Path):
    assert (
        [package.name for package in packages_named([])]
        == list(PACKAGES)
        == ["cachetools", "inflection", "parse", "sqlparse", "toolz"]
    )
    with pytest.raises(ConfigError, match="no package 'six'"):
        packages_named(["six"])
    other = Package("six", "1.0", "0" * 64, ("*.py",), ("*.py",))
    (tmp_path / other.file).write_bytes(b"not it")
    with pytest.raises(DataError, match="not the archive that is known: its sha256 is"):
        sdist(other, tmp_path)


def test_a_package_without_tests_is_refused():
    with pytest.raises(DataError, match="the package has no tests"):
        tree("tally", "1", FILES, ["tally/*.py"], ["test/*.py"])
