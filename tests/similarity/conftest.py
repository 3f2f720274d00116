"""Texts of random words, copies of them with some words changed, and trajectories that say them."""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow as pa
import pytest

from clawpipe.core.contracts.schema import schema_of
from clawpipe.core.store.artifacts import Store
from clawpipe.core.store.datasets import publish_dataset
from clawpipe.data.similarity.duplicates import Signed
from clawpipe.data.similarity.signatures import sign


def text(seed, words=80):
    draw = random.Random(seed)
    return " ".join("".join(draw.choices("abcdefghij", k=5)) for _ in range(words))


def changed(original, seed, words):
    """`original` with so many words, wherever they stand, replaced."""
    draw, parts = random.Random(seed), original.split()
    for place in draw.sample(range(len(parts)), words):
        parts[place] = f"new{seed}{place}"
    return " ".join(parts)


def message(role, content, *calls):
    found = [{"id": "1", "name": name, "arguments": arguments, "malformed": False} for name, arguments in calls]
    return {"role": role, "content": content, "tool_calls": found, "tool_call_id": None, "name": None}


def row(name, dialogue_text, item="", question="please", **fields):
    messages = [message("user", question), message("assistant", dialogue_text)]
    own = {"trajectory_id": name, "item_id": item or f"item-{name}", "messages": messages}
    return dict.fromkeys(schema_of("trajectories").names) | own | fields


class Shelf:
    """A store, and datasets of trajectories in it."""

    def __init__(self, root: Path) -> None:
        self.store = Store(root)

    def trajectories(self, rows, files=1):
        table = pa.Table.from_pylist(rows, schema=schema_of("trajectories"))
        size = max(-(-len(rows) // files), 1)
        return publish_dataset(self.store, "trajectories", [table.slice(i, size) for i in range(0, max(len(rows), 1), size)])

    def signed(self, rows, files=1):
        trajectories = self.trajectories(rows, files)
        return Signed(trajectories, sign(self.store, trajectories).dataset)


@pytest.fixture
def shelf(tmp_path):
    return Shelf(tmp_path / "store")


@pytest.fixture
def make():
    """Functions that make texts, messages and rows: `make.text(seed)`, `make.changed(...)` and so on."""

    class Make:
        text, changed, message, row = map(staticmethod, (text, changed, message, row))

    return Make
