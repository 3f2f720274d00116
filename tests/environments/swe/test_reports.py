"""Results of tests are read from pytest's own XML, by the names that pytest's collection prints."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from clawpipe.play.environments.swe.names import key_of
from clawpipe.play.environments.swe.reports import Key, Status, read_report, statuses

TESTS = """\
import unittest
import pytest

@pytest.mark.parametrize("x", ["a b", "c::d", "e[f]", "g/h.py"])
def test_x(x): pass

class TestOuter:
    class TestInner:
        def test_y(self): assert 0

class Old(unittest.TestCase):
    def test_old(self): pass

@pytest.fixture
def leaves():
    yield
    raise ValueError

def test_teardown(leaves): pass
def test_skipped(): pytest.skip("no")

@pytest.mark.xfail
def test_expected(): assert 0
"""


BECAME = {
    "sub.x/test_a.py::test_x[a b]": "passed",
    "sub.x/test_a.py::test_x[c::d]": "passed",
    "sub.x/test_a.py::test_x[e[f]]": "passed",
    "sub.x/test_a.py::test_x[g/h.py]": "passed",
    "sub.x/test_a.py::TestOuter::TestInner::test_y": "failed",
    "sub.x/test_a.py::Old::test_old": "passed",
    "sub.x/test_a.py::test_teardown": "failed",
    "sub.x/test_a.py::test_skipped": "skipped",
    "sub.x/test_a.py::test_expected": "passed",
}


def test_names_are_those_that_pytest_writes(tmp_path: Path):
    (tmp_path / "sub.x").mkdir()
    (tmp_path / "sub.x" / "test_a.py").write_text(TESTS)
    pytest = [sys.executable, "-B", "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir=.", "sub.x/test_a.py"]
    collected = subprocess.run([*pytest, "--collect-only"], cwd=tmp_path, capture_output=True, text=True).stdout
    assert [line for line in collected.splitlines() if "::" in line] == list(BECAME)
    subprocess.run([*pytest, "--junitxml=r.xml"], cwd=tmp_path, capture_output=True)
    assert statuses(BECAME, read_report((tmp_path / "r.xml").read_bytes())) == BECAME


def test_a_name_cut_within_its_parameters_stands_for_all():
    report = read_report(
        b'<testsuites><testsuite><testcase classname="t.test_a" name="test_b[x y]"/>'
        b'<testcase classname="t.test_a" name="test_b[x z]"><failure/></testcase></testsuite></testsuites>'
    )
    found = statuses(["t/test_a.py::test_b[x", "t/test_a.py::test_b[x y]", "t/test_a.py::test_b[u"], report)
    assert list(found.values()) == ["failed", "passed", "missing"]


def test_what_is_no_report_says_nothing():
    assert read_report(b"<testsuite>") == {}
    assert key_of("tests/test_a.py::TestB::test_c[x.py::y]") == ("tests.test_a.TestB", "test_c[x.py::y]")


def test_names_without_a_file_are_found_by_class_or_alone():
    report: dict[Key, Status] = {
        ("tests.app.test_a.Tests", "test_x"): "passed",
        ("tests.app.test_a.Tests", "test_y"): "passed",
        ("tests.app.test_b.Tests", "test_y"): "failed",
        ("tests.wrapp.test_a.Tests", "test_z"): "passed",
        ("", "Sums (of two) are right."): "passed",
    }
    became = {
        "test_x (app.test_a.Tests)": "passed",
        "test_x (app.test_a.Tests.test_x)": "passed",
        "test_x (test_a.Tests)": "passed",
        "test_y": "failed",
        "test_y (test_a.Tests)": "passed",
        "test_z (app.test_a.Tests)": "missing",
        "Sums (of two) are right.": "passed",
        "No such sentence.": "missing",
    }
    assert statuses(became, report) == became
