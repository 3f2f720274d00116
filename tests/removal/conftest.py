"""The home of tests/lineage, of which things are removed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.lineage.conftest import NOLOAD, filled, tracking

__all__ = ["filled", "tracking"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(pytest.mark.filterwarnings(NOLOAD))
