"""Runs tests in a sandbox: `python run_tests.py [ARGUMENT ...]` in the folder of a repository, with this file's folder `packages`.

The arguments are pytest's. Beginning with `--runtests=REPORT`, they are files of Django's tests, which its tests/runtests.py runs.
What runs the tests is imported before the repository can be: a module in it with such a name is not taken for it. Images have old
Pythons: this file is for 3.6 and newer.
"""
# ruff: noqa: N802  # unittest's names

import atexit
import runpy
import sys
import unittest
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

_RUNTESTS = "--runtests="


def main() -> int:
    own, repository = Path(__file__).resolve().parent, Path.cwd()
    sys.path[0] = str(own / "packages")
    if sys.argv[1].startswith(_RUNTESTS):
        sys.path[1:1] = [str(repository / "tests"), str(repository)]
        return _with_runtests(sys.argv[1][len(_RUNTESTS) :], sys.argv[2:])
    return _with_pytest([str(place) for place in (repository, repository / "src", repository / "lib") if place.is_dir()])


def _with_pytest(places: "list[str]") -> int:
    try:
        import _pytest.junitxml  # noqa: F401  # pyright: ignore[reportUnusedImport]
        import pytest
    except ImportError:
        print("this Python has no pytest", file=sys.stderr)
        return 3
    sys.path[:0] = places
    return int(pytest.main(sys.argv[1:]))


def _with_runtests(report: str, files: "list[str]") -> int:
    unittest.TextTestRunner.resultclass = Recorded  # pyright: ignore[reportAttributeAccessIssue]  # it is None at first
    modules = [".".join(Path(file).relative_to("tests").with_suffix("").parts) for file in files]
    sys.argv = ["tests/runtests.py", "--settings=test_sqlite", "--parallel=1", "--noinput", *modules]
    atexit.register(Recorded.write, report)
    runpy.run_path("tests/runtests.py", run_name="__main__")
    return 0


class Recorded(unittest.TextTestResult):
    """Keeps what became of each test, as pytest's XML tells it: the first line of a docstring is a second name of its test."""

    suites = ET.Element("testsuites")

    @classmethod
    def write(cls, report: str) -> None:
        with open(report, "wb") as file:
            file.write(ET.tostring(cls.suites))

    def _keep(self, test: unittest.TestCase, status: str) -> None:
        place, _, name = test.id().rpartition(".")
        doc = test.shortDescription()
        for classname, called in [(place, name), *([("", doc)] if doc else [])]:
            case = ET.SubElement(self.suites, "testcase", classname=classname, name=called)
            if status:
                ET.SubElement(case, status)

    def addSuccess(self, test: unittest.TestCase) -> None:
        super().addSuccess(test)
        self._keep(test, "")

    def addError(self, test: unittest.TestCase, err: Any) -> None:
        super().addError(test, err)
        self._keep(test, "error")

    def addFailure(self, test: unittest.TestCase, err: Any) -> None:
        super().addFailure(test, err)
        self._keep(test, "failure")

    def addSubTest(self, test: unittest.TestCase, subtest: unittest.TestCase, err: Any) -> None:
        super().addSubTest(test, subtest, err)
        if err is not None:
            self._keep(test, "failure")

    def addSkip(self, test: unittest.TestCase, reason: str) -> None:
        super().addSkip(test, reason)
        self._keep(test, "skipped")

    def addExpectedFailure(self, test: unittest.TestCase, err: Any) -> None:
        super().addExpectedFailure(test, err)
        self._keep(test, "")

    def addUnexpectedSuccess(self, test: unittest.TestCase) -> None:
        super().addUnexpectedSuccess(test)
        self._keep(test, "failure")


if __name__ == "__main__":
    sys.exit(main())
