"""What is reported of tests: JUnit XML as pytest writes it, read by the names that tests have in files of tasks."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Iterable
from typing import Literal

from clawpipe.play.environments.swe.names import Key, file_of, key_of, stands_for

Status = Literal["passed", "failed", "skipped", "missing"]
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
    """Return what a report says of tests. A name that fits several, as one that was cut within its parameters, stands for all."""
    return {test: _of(test, report) for test in tests}


def _of(test: str, report: dict[Key, Status]) -> Status:
    if file_of(test) is None:
        return _worst_of(status for key, status in report.items() if stands_for(test, key))
    key = key_of(test)
    if key in report or "[" not in key[1] or key[1].endswith("]"):
        return report.get(key, "missing")
    return _worst_of(status for (place, name), status in report.items() if place == key[0] and name.startswith(key[1]))


def _worst_of(found: Iterable[Status]) -> Status:
    like = list(found)
    return _worst(like) if like else "missing"


def _worst(found: Iterable[Status]) -> Status:
    return min(found, key=_WORST.index)


def _status(case: ET.Element) -> Status:
    if case.find("failure") is not None or case.find("error") is not None:
        return "failed"
    skipped = case.find("skipped")
    return "passed" if skipped is None or skipped.get("type") == "pytest.xfail" else "skipped"
