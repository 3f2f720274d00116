"""The page "What we do not believe" has every reason that the code gives."""

import re
import sys
from pathlib import Path

import pytest

from clawpipe.core.contracts.odcs import contract_names, load_contract
from clawpipe.data.importers.read.read import Reader
from clawpipe.data.importers.read.reading import Refusal

sys.path.insert(0, "docs")
disbelieved = pytest.importorskip("disbelieved")

SQL = sorted(Path("clawpipe/data/curation/sql").glob("[0-9]*.sql"))
RAISED = sorted(Path("clawpipe/data/importers").rglob("*.py")) + sorted(Path("clawpipe/serve/gateway").rglob("*.py"))
LINES = [
    b"",
    b"nonsense",
    b'{"a": NaN}',
    b'{"a": 1, "a": 2}',
    b"[1]",
    b'{"what": 1}',
    b'{"prompt": "p", "completion": null}',
    b'{"prompt": "p", "completion": []}',
    b'{"prompt": "p", "completion": 4}',
    b'{"messages": [{"role": "robot", "content": "x"}]}',
    b'{"messages": [{"role": "user", "content": "x"}]}',
    b'{"chosen": "a", "rejected": "a", "prompt": "p"}',
    b'{"conversations": [{"from": "robot", "value": "x"}]}',
    b'{"type": "SPAN", "traceId": "t", "input": {}, "output": {}}',
    b'{"trajectory_id": "../x"}',
]


@pytest.fixture(scope="module")
def reasons():
    """The reasons on the page, as patterns."""
    rows = re.findall(r"^\| (.*) \| `", disbelieved.disbelieved(), re.MULTILINE)
    return [re.sub(r"\\([|\[\]*_<>`])", r"\1", row) for row in rows]


def shown(reasons, said):
    return any(re.fullmatch(".*".join(map(re.escape, reason.split("…"))), said, re.DOTALL) for reason in reasons)


@pytest.mark.parametrize("line", LINES)
def test_why_a_line_was_rejected_is_on_the_page(tmp_path, reasons, line):
    (tmp_path / "a.jsonl").write_bytes(line + b"\n")
    reader = Reader()
    [refused] = [*reader.file(str(tmp_path / "a.jsonl")), *reader.sessions()]
    assert isinstance(refused, Refusal)
    assert refused.reason in reasons or shown([reason for reason in reasons if reason.strip("… :")], refused.reason)


def test_what_exceptions_and_steps_say_is_on_the_page(reasons):
    raised = {text for file in RAISED for text in re.findall(r'(?:Refused|Uncaptured|Unheld)Error\("([^"{]+)"\)', file.read_text())}
    steps = {text for file in SQL for text in re.findall(r"\bthen '([^']+)'\s*\n", file.read_text()) if " " in text}
    assert len(raised) > 40
    assert len(steps) > 30
    assert [text for text in sorted(raised | steps) if not shown(reasons, text)] == []


def test_rules_of_contracts_are_on_the_page(reasons):
    rules = {rule.name for name in contract_names() for rule in load_contract(name).rules}
    assert rules
    assert rules <= set(reasons)


MINE = """
WHY = 'for a name'

def fault(a):
    return WHY if a else f'of {a}'

def read(a):
    raise RefusedError(fault(a) or 'plain')
"""


def test_a_reason_that_is_new_is_on_the_page_by_itself(tmp_path, monkeypatch):
    package = tmp_path / "mine"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "read.py").write_text(MINE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(disbelieved, "CODE", package)
    assert {reason.text for reason in disbelieved.raised("read", "RefusedError")} == {"for a name", "of …", "plain"}
    assert {reason.text for reason in disbelieved.returned("read", "fault")} == {"for a name", "of …"}


def test_every_section_has_reasons():
    assert all(collect() for _, collect in disbelieved.SECTIONS.values())
