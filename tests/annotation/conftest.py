"""The tiny models of tests/training."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.training.conftest import _one_thread, tiny_llama

__all__ = ["_one_thread", "tiny_llama"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(pytest.mark.trains)
