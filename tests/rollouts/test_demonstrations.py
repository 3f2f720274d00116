"""The environment demonstrates what no rollout solved: once an item, verified, and never a held-out one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from clawpipe.core.config.idle import idle_note
from clawpipe.core.config.night import NightConfig
from clawpipe.core.contracts.schema import schema_of
from clawpipe.core.contracts.validate import validate
from clawpipe.core.store.artifacts import Store
from clawpipe.core.store.datasets import publish_dataset, read_dataset
from clawpipe.core.store.refs import DatasetRef
from clawpipe.errors import ConfigError
from clawpipe.learn.evaluation.heldout.draw import publish_items
from clawpipe.play.environments.base import Hindsight, TaskItem
from clawpipe.play.environments.demonstration import demonstration_note
from clawpipe.play.environments.discovery import load_environment
from clawpipe.play.environments.ending import messages_of
from clawpipe.play.environments.several import OpenEnvironments
from clawpipe.play.rollouts.demonstrations import demonstrate

SHOP: Any = load_environment("shop", {})
ITEMS: list[TaskItem] = SHOP.items("train", 4, 0)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


def rollouts(store: Store, *tried: tuple[TaskItem, Sequence[bool | None]]) -> tuple[list[DatasetRef], list[DatasetRef]]:
    """Rollouts of items, of which nothing but the verdict matters; None: without one."""
    rows, scores = [], []
    for item, verdicts in tried:
        for index, success in enumerate(verdicts):
            name = f"{item.item_id}-{index}"
            rows.append(_rollout(item, name, index))
            if success is not None:
                scores.append({"trajectory_id": name, "value": 0.0, "success": success})
    said = {"scorer": "verifier/shop", "origin": "verifier", "reason": "", "evidence": "{}"}
    tables = {"trajectories": rows, "scores": [said | score for score in scores]}
    made = [publish_dataset(store, name, [pa.Table.from_pylist(some, schema_of(name))]) for name, some in tables.items()]
    return made[:1], made[1:]


def _rollout(item: TaskItem, name: str, index: int) -> dict[str, Any]:
    streams: dict[str, Any] = {name: [] for name in ("token_ids", "loss_mask", "logprobs", "turns")}
    row = {"trajectory_id": name, "item_id": item.item_id, "group_id": f"{item.item_id}/p0", "rollout_index": index}
    row |= {"environment": "shop", "split": item.split, "source": "rollout", "policy_version": "p0", "temperature": 0.8}
    return row | streams | {"messages": [], "prompt_tokens": 0, "seed": 0, "finish_reason": "stop", "tokens": "none"}


def shown(store: Store, environment: Any, *tried: tuple[TaskItem, Sequence[bool | None]], items: Sequence[TaskItem] = ITEMS) -> Any:
    result = demonstrate(store, *rollouts(store, *tried), publish_items(store, items), OpenEnvironments({"shop": environment}))
    return result, read_dataset(store, result.dataset).to_pylist()


def test_only_items_that_no_rollout_solved_are_demonstrated(store: Store) -> None:
    one, two, three, unjudged = ITEMS
    result, rows = shown(store, SHOP, (one, [False, False]), (two, [False, True]), (three, [True]), (unjudged, [None]))
    assert [(row["item_id"], row["group_id"], row["rollout_index"]) for row in rows] == [(one.item_id, f"{one.item_id}/p0", 2)]
    assert (result.rows_in, result.rows_out, result.filtered) == (1, 1, {})


def test_a_demonstration_is_played_and_keeps_the_contract(store: Store) -> None:
    result, rows = shown(store, SHOP, *((item, [False]) for item in ITEMS))
    assert validate(store, result.dataset, "trajectories").filtered == {}
    for row in rows:
        item = next(item for item in ITEMS if item.item_id == row["item_id"])
        assert SHOP.verify(item, messages_of(row)).value == 1.0
        assert [message["role"] for message in row["messages"]] == ["user", "assistant", "tool", "assistant"]
        assert (row["tokens"], row["temperature"], row["ended"]) == ("none", 0.8, "done")


def test_equal_rounds_have_equal_demonstrations(store: Store) -> None:
    tried = [(item, [False]) for item in ITEMS]
    assert shown(store, SHOP, *tried)[0] == shown(store, SHOP, *reversed(tried))[0].model_copy(
        update={"output": shown(store, SHOP, *tried)[0].output}
    )
    assert shown(store, SHOP, *tried)[1] == shown(store, SHOP, *reversed(tried))[1]


def test_heldout_and_unknown_items_are_never_demonstrated(store: Store) -> None:
    heldout = SHOP.items("heldout", 1, 0)[0]
    result, rows = shown(store, SHOP, (heldout, [False]), (ITEMS[0], [False]), items=[heldout])
    assert (rows, result.rows_in) == ([], 0)


class Silent:
    """A shop without hindsight about some items."""

    name, kind = "shop", "tool-call"

    def __init__(self, says: dict[str, Any]) -> None:
        self._says = says

    def __getattr__(self, name: str) -> Any:
        return getattr(SHOP, name)

    def hindsight(self, item: TaskItem, messages: Sequence[Any]) -> Hindsight:
        return self._says.get(item.item_id) or SHOP.hindsight(item, messages)


class RaisesError(Exception): ...


class Raising(Silent):
    def hindsight(self, item: TaskItem, messages: Sequence[Any]) -> Hindsight:
        raise RaisesError


def test_items_without_a_demonstration_are_counted(store: Store) -> None:
    silent = Silent({ITEMS[0].item_id: Hindsight(("Call stock.",))})
    result, rows = shown(store, silent, *((item, [False]) for item in ITEMS))
    assert (len(rows), result.filtered) == (3, {"no demonstration": 1})
    assert shown(store, Raising({}), (ITEMS[0], [False]))[0].filtered == {"hindsight raised": 1}


def test_an_environment_that_shows_nothing_is_named() -> None:
    assert demonstration_note(OpenEnvironments({"shop": SHOP})) is None
    nothing: Any = Silent({SHOP.items("train", 1, 0)[0].item_id: Hindsight(("Call stock.",))})
    assert f"no effect with {nothing.name}" in str(demonstration_note(OpenEnvironments({"shop": SHOP, "silent": nothing})))
    raising: Any = Raising({})
    with pytest.raises(ConfigError, match="its hindsight raised RaisesError"):
        demonstration_note(OpenEnvironments({"shop": raising}))


def test_without_rollouts_there_is_nothing_to_demonstrate() -> None:
    night = NightConfig.model_validate(
        {"rollouts": None, "trajectories": ["a"], "curation": {"demonstrations": {"share": 0.2}}, "train": {"method": "sft"}}
    )
    assert "curation.demonstrations.share (`rollouts` is null" in str(idle_note(night))
