"""What a night says when it lost what it hardly asked for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from clawpipe.core.config.night import NightConfig
from clawpipe.core.contracts.schema import schema_of
from clawpipe.core.store.artifacts import Store
from clawpipe.core.store.datasets import publish_dataset
from clawpipe.core.store.refs import StepResult
from clawpipe.record.nights.forgetting import forgetting_warning
from clawpipe.record.nights.status import NightStatus, entry


def items(store: Store, split: str, **counts: int) -> StepResult:
    rows = [
        {"item_id": f"{split}-{part}-{number}", "split": split, "slice": part, "messages": [], "ordinal": number}
        for part, count in counts.items()
        for number in range(count)
    ]
    fields = {"identity": "i", "environment": "shop", "kind": "tool-call", "truth": "{}"}
    table = pa.Table.from_pylist([row | fields for row in rows], schema=schema_of("task_items"))
    return StepResult(output=publish_dataset(store, "task_items", [table]))


def told(tmp_path: Path, p: dict[str, float], asked: dict[str, int], **settings: Any) -> str | None:
    """The warning of a night whose slices have these p-values of a loss, and which asked for so many train items of each."""
    store = Store(tmp_path / "store")
    gate = StepResult(details={"slices": [{"slice": name, "p_regression": value} for name, value in p.items()]})
    heldout = items(store, "heldout", **dict.fromkeys(p, 2))
    made = {"make_items": items(store, "train", **asked), "draw_heldout": heldout, "gate": gate}
    steps = [entry(name, False, 1.0, None, result) for name, result in made.items()]
    status = NightStatus(night="n", steps=steps, run_dir=str(tmp_path))
    return forgetting_warning(status, store, NightConfig.model_validate({"night": "n"} | settings))


def test_a_lost_slice_that_the_night_did_not_ask_for_is_named(tmp_path: Path):
    warning = told(tmp_path, {"calc": 0.001, "price": 0.9}, {"price": 8})
    assert warning
    assert "calc (0 of 8 train items)" in warning
    assert "replay_nights" in warning


@pytest.mark.parametrize(
    ("p", "asked", "settings"),
    [
        ({"calc": 0.001, "price": 0.9}, {"calc": 4, "price": 4}, {}),  # it was asked for like the other
        ({"calc": 0.04, "price": 0.9}, {"price": 8}, {}),  # no clear loss: 0.05 over two slices
        ({"calc": 0.001}, {"price": 8}, {"curation": {"sampling": {"replay": 0.5, "replay_nights": 2}}}),
        ({"calc": 0.001}, {"price": 8}, {"rollouts": None, "trajectories": ["new"]}),
    ],
)
def test_other_nights_say_nothing(tmp_path: Path, p: dict[str, float], asked: dict[str, int], settings: dict[str, Any]):
    assert told(tmp_path, p, asked, **settings) is None
