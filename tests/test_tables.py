"""The tables of pages that the code knows are what the code has."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, "docs")
tables = pytest.importorskip("tables")


@pytest.mark.parametrize(("page", "name"), list(tables.TABLES))
def test_a_table_is_what_the_code_has(page, name):
    text = Path("docs", page).read_text()
    assert f"<!-- {name}:" in text
    assert tables.written(page, name, text) == text, "run python docs/tables.py"
