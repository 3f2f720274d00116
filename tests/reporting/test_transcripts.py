"""Held-out conversations for the report."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from clawpipe.core.contracts.schema import schema_of
from clawpipe.core.store.artifacts import Store
from clawpipe.core.store.datasets import publish_dataset
from clawpipe.core.store.refs import StepResult
from clawpipe.record.nights.status import NightStatus, entry
from clawpipe.record.reporting.transcripts import heldout_transcripts


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


def evaluation(store: Store, role: str, successes: list[bool | None]) -> StepResult:
    """A model's results on items 0, 1, ...; it calls a tool and answers."""
    call = {"id": "call_0_0", "name": "stock", "arguments": '{"item": "lamp"}', "malformed": False}
    said = [
        {"role": "user", "content": "how many lamps?", "tool_calls": []},
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "content": "17", "tool_calls": [], "tool_call_id": "call_0_0", "name": "stock"},
        {"role": "assistant", "content": f"{role} says 17", "tool_calls": []},
    ]
    plain = {"group_id": "g", "rollout_index": 0, "environment": "shop", "split": "heldout", "source": "rollout", "seed": 0}
    plain |= {"policy_version": role, "renderer_digest": "r", "token_ids": [1], "loss_mask": [True], "logprobs": [0.0]}
    plain |= {"prompt_tokens": 0, "turns": [], "temperature": 0.0, "finish_reason": "stop", "tokens": "recorded", "messages": said}
    names = [(f"item{number}", f"{role}{number}") for number in range(len(successes))]
    trajectories = [{"trajectory_id": name, "item_id": item} | plain for item, name in names]
    results = [
        {"policy_version": role, "item_id": item, "slice": "stock", "trajectory_id": name, "success": success, "value": 0.0}
        | {"error": "boom" if success is None else None, "seed": 0}
        for (item, name), success in zip(names, successes, strict=True)
    ]
    tables = {"eval_results": results, "trajectories": trajectories}
    refs = {
        name: publish_dataset(store, name, [pa.Table.from_pylist(rows, schema=schema_of(name))]) for name, rows in tables.items()
    }
    return StepResult(output=refs["eval_results"], extras={"trajectories": refs["trajectories"]})


def night(store: Store, **successes: list[bool | None]) -> NightStatus:
    steps = [entry(f"evaluate/{role}", False, 1.0, None, evaluation(store, role, result)) for role, result in successes.items()]
    return NightStatus(night="n", steps=steps)


def test_a_few_of_each_outcome(store: Store) -> None:
    base = [False] * 6 + [True, True, False, None]
    candidate = [True] * 5 + [False, False, True, False, True]
    shown = heldout_transcripts(store, night(store, base=base, candidate=candidate))
    assert [(transcript.outcome, transcript.item_id) for transcript in shown] == [
        ("won", "item0"),
        ("won", "item1"),
        ("won", "item2"),
        ("lost", "item6"),
        ("unsolved", "item5"),
        ("unsolved", "item8"),
        ("solved", "item7"),
    ]


def test_both_conversations_are_told_after_the_question(store: Store) -> None:
    [shown] = heldout_transcripts(store, night(store, base=[False], candidate=[True]))
    assert shown.question == "how many lamps?"
    assert [(answer.role, answer.success) for answer in shown.answers] == [("base", False), ("candidate", True)]
    assert shown.answers[1].lines == (
        ("assistant", 'stock({"item": "lamp"})'),
        ("tool", "17"),
        ("assistant", "candidate says 17"),
    )


def test_the_champion_is_the_one_to_compare_with(store: Store) -> None:
    [shown] = heldout_transcripts(store, night(store, base=[True], champion=[False], candidate=[False]))
    assert (shown.outcome, shown.answers[0].role) == ("unsolved", "champion")


def test_no_transcripts_without_evaluation_or_an_intact_store(store: Store) -> None:
    assert heldout_transcripts(store, NightStatus(night="n")) == []
    status = night(store, base=[False], candidate=[True])
    for part in (store.root / "trajectories").glob("*/part-*"):
        part.write_bytes(b"")
    assert heldout_transcripts(store, status) == []
