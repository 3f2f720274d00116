"""Small tables of scored trajectories."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from clawpipe.core.config.night import Curation
from clawpipe.core.contracts import schema_of
from clawpipe.core.store.artifacts import Store
from clawpipe.core.store.datasets import publish_dataset, read_dataset
from clawpipe.core.store.refs import DatasetRef, StepResult
from clawpipe.data.curation import runner
from clawpipe.data.curation.runner import curate

Row = dict[str, Any]
WEIGHTS = {"opd": (0.0, 1.0), "combine": (1.0, 1.0)}


def message(role: str, content: str | None, *calls: tuple[str, str, str]) -> Row:
    """Calls are (id, name, arguments)."""
    tool_calls = [{"id": id_, "name": name, "arguments": arguments, "malformed": False} for id_, name, arguments in calls]
    return {"role": role, "content": content, "tool_calls": tool_calls, "tool_call_id": None, "name": None}


class Tables:
    """Collects rows, then curates them."""

    def __init__(self, root: Path) -> None:
        self.store = Store(root)
        self.trajectories: list[Row] = []
        self.scores: list[Row] = []
        self.items: list[Row] = []

    def item(self, item_id: str, question: str, split: str = "train", identity: str | None = None) -> None:
        fields = {"item_id": item_id, "identity": identity or item_id, "environment": "shop", "kind": "tool-call", "split": split}
        self.items.append(
            fields | {"slice": "s", "messages": [message("user", question)], "truth": "{}", "ordinal": len(self.items)}
        )

    def rollout(self, item_id: str, index: int, reward: float | None, text: str | None = None, **fields: Any) -> None:
        """Prompt of three tokens, answer of two; the text differs from rollout to rollout unless given. No reward: no score."""
        name = fields.get("trajectory_id", f"{item_id}-{index}")
        row = {
            "trajectory_id": name,
            "item_id": item_id,
            "group_id": f"{item_id}/p0",
            "rollout_index": index,
            "environment": "shop",
            "split": "train",
            "source": "rollout",
            "policy_version": "p0",
            "renderer_digest": "r0",
            "messages": [message("user", f"about {item_id}?"), message("assistant", text or f"answer {index}")],
            "token_ids": [1, 2, 3, 10 + index, 11],
            "loss_mask": [False, False, False, True, True],
            "logprobs": [0.0, 0.0, 0.0, -0.5, -0.25],
            "prompt_tokens": 3,
            "turns": [{"start": 3, "end": 5, "kind": "main", "finish_reason": "stop"}],
            "temperature": 0.8,
            "seed": index,
            "finish_reason": "stop",
            "tokens": "recorded",
            "logprobs_kind": "tempered",
        }
        self.trajectories.append(row | fields)
        if reward is not None:
            self.score(name, reward)

    def score(self, name: str, value: float, **fields: Any) -> None:
        row = {"trajectory_id": name, "turn": None, "scorer": "verifier/shop", "origin": "verifier", "value": value}
        row |= {"success": value == 1.0, "reason": "", "evidence": "{}", "hints": None, "demonstration": None}
        self.scores.append(row | fields)

    def publish(self, name: str, rows: list[Row], without: Sequence[str] = ()) -> DatasetRef:
        table = pa.Table.from_pylist(rows, schema=schema_of(name))
        return publish_dataset(self.store, name, [table.drop_columns(list(without))])

    def curate(
        self,
        method: str = "grpo",
        threads: int | None = 1,
        weights: tuple[float, float] | None = None,
        hint: str = "text",
        versions: Sequence[str] = (),
        normalise: str = "token",
        **config: Any,
    ) -> StepResult:
        """With the weights of the method's own loss unless told otherwise."""
        refs = [self.publish(name, rows) for name, rows in (("trajectories", self.trajectories), ("scores", self.scores))]
        items = self.publish("task_items", self.items)
        options = {"weights": weights or WEIGHTS.get(method, (1.0, 0.0)), "hint": hint, "versions": versions, "threads": threads}
        options["normalise"] = normalise
        return curate(self.store, refs[:1], refs[1:], items, Curation(**config), method, **options)

    def agrees_with_one_batch(self, apart: StepResult, again: Callable[[], StepResult]) -> bool:
        """Whether `again`, told to decide everything at once, comes to the rows of `apart`, in any order, and to its figures."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(runner, "stays_within_groups", lambda *_: False)
            whole = again()
        rows = [sorted(self.rows(result), key=str) for result in (apart, whole)]
        figures = [result.model_dump(exclude={"output"}) for result in (apart, whole)]
        return rows[0] == rows[1] and figures[0] == figures[1]

    def rows(self, result: StepResult) -> list[Row]:
        assert isinstance(result.output, DatasetRef)
        return read_dataset(self.store, result.output).to_pylist()

    def kept(self, result: StepResult) -> list[str]:
        return [row["trajectory_id"] for row in self.rows(result)]


@pytest.fixture
def tables(tmp_path: Path) -> Tables:
    return Tables(tmp_path / "store")


@pytest.fixture
def say():
    """`say(role, content, *calls)`: a message."""
    return message
