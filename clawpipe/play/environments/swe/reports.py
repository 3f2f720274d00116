"""What pytest reports of tests: its JUnit XML, read by the names that tests have in files of tasks."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Iterable
from typing import Literal, TypeAlias

Status = Literal["passed", "failed", "skipped", "missing"]
Key: TypeAlias = tuple[str, str]  # class and name, as the XML has them
_WORST: tuple[Status, ...] = ("failed", "skipped", "passed")


def read_report(xml: bytes) -> dict[Key, Status]:
    """Return what became of each test; nothing where the text is no report. An expected failure has passed."""
    found: dict[Key, Status] = {}
    try:
        cases = list(ET.fromstring(xml).iter("testcase"))
    except ET.ParseError:
        return {}
    for case in cases:
        key = case.get("classname") or "", case.get("name") or ""
        status = _status(case)
        found[key] = _worst([status, found.get(key, status)])  # one that fails in teardown has two cases
    return found


def statuses(tests: Iterable[str], report: dict[Key, Status]) -> dict[str, Status]:
    """Return what a report says of tests. One whose name was cut within its parameters stands for all that begin like it."""
    return {test: _of(test, report) for test in tests}


def key_of(test: str) -> Key:
    """Return a test's name as pytest's XML has it: tests/test_a.py::TestB::test_c[x] is (tests.test_a.TestB, test_c[x])."""
    path, bracket, parameters = test.partition("[")
    file, *classes, name = path.split("::")
    module = file.replace("/", ".").removesuffix(".py")
    return ".".join((module, *classes)), name + bracket + parameters


def _of(test: str, report: dict[Key, Status]) -> Status:
    key = key_of(test)
    if key in report or "[" not in key[1] or key[1].endswith("]"):
        return report.get(key, "missing")
    like: list[Status] = [status for (place, name), status in report.items() if place == key[0] and name.startswith(key[1])]
    return _worst(like) if like else "missing"


def _worst(found: Iterable[Status]) -> Status:
    return min(found, key=_WORST.index)


def _status(case: ET.Element) -> Status:
    if case.find("failure") is not None or case.find("error") is not None:
        return "failed"
    skipped = case.find("skipped")
    return "passed" if skipped is None or skipped.get("type") == "pytest.xfail" else "skipped"
