"""Rows that keep their contract, to be broken one way at a time."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from clawpipe.core.contracts.odcs import newest_version
from clawpipe.core.contracts.schema import schema_of
from clawpipe.core.store.artifacts import Store
from clawpipe.core.store.datasets import publish_dataset
from clawpipe.core.store.refs import DatasetRef

Row = dict[str, Any]


def _message(role: str, content: str, **fields: Any) -> Row:
    return {"role": role, "content": content, "tool_calls": [], "tool_call_id": None, "name": None} | fields


def _call() -> Row:
    return {"id": "call_0_0", "name": "stock", "arguments": '{"item": "kettle"}', "malformed": False}


_MESSAGES = [
    _message("user", "How many kettles?"),
    _message("assistant", "", tool_calls=[_call()]),
    _message("tool", "3", tool_call_id="call_0_0", name="stock"),
    _message("assistant", "Three."),
]


_OF_IMPORTS = (
    *("session_id", "user_id", "model", "status", "kinds", "tool_calls", "tool_errors", "tools"),
    *("rendered_ids", "rendered_mask", "rendered_logprobs", "rendered_policy", "logprobs_kind", "origin", "extra"),
    *("ended", "verdict", "error", "turn_rewards"),
)


def _trajectory() -> Row:
    """Four prompt tokens, a turn of two, a tool result of one, a turn of one."""
    return {
        "trajectory_id": "t0",
        "item_id": "i0",
        "group_id": "i0/p0",
        "rollout_index": 0,
        "environment": "shop",
        "split": "train",
        "source": "rollout",
        "policy_version": "p0",
        "renderer_digest": "r0",
        "messages": _MESSAGES,
        "token_ids": [1, 2, 3, 4, 5, 6, 7, 8],
        "loss_mask": [False, False, False, False, True, True, False, True],
        "logprobs": [0.0, 0.0, 0.0, 0.0, -0.5, -1.5, 0.0, -2.5],
        "prompt_tokens": 4,
        "turns": [
            {"start": 4, "end": 6, "kind": "main", "finish_reason": "stop"},
            {"start": 7, "end": 8, "kind": "main", "finish_reason": "length"},
        ],
        "temperature": 0.8,
        "seed": 7,
        "finish_reason": "stop",
        "tokens": "recorded",
    } | dict.fromkeys(_OF_IMPORTS)


def _item() -> Row:
    fields = {"item_id": "i0", "identity": "stock/kettle", "environment": "shop", "kind": "tool-call", "split": "train"}
    whose = {"session_id": "s0", "user_id": None, "origin": {"format": "hf-prompt", "file": "/data/prompts.jsonl", "line": 3}}
    return fields | {"slice": "stock", "messages": _MESSAGES[:1], "truth": "{}", "ordinal": 0} | whose


def _score() -> Row:
    fields = {"trajectory_id": "t0", "turn": None, "scorer": "verifier/shop", "origin": "verifier", "value": 1.0}
    hindsight = {"hints": ["Call stock."], "demonstration": _MESSAGES[1:]}
    return fields | {"success": True, "reason": "right", "evidence": "{}"} | hindsight


def _sample() -> Row:
    own: Row = {"advantages": [0.0, 0.0, 0.0, 0.0, 1.0, 1.0, 0.0, 1.0], "weight": 1.0}
    own["rewards"] = [0.0, 0.0, 0.0, 0.0, 0.0, 0.5, 0.0, 1.0]
    own["turns"] = [{"turn": 0, "start": 4, "end": 6}, {"turn": 1, "start": 7, "end": 8}]
    return {name: value for name, value in (_trajectory() | own).items() if name in schema_of("samples").names}


def _preference_pair() -> Row:
    """The answer after the tool's result differs from the one that guesses."""
    shared = _trajectory()
    fields = {name: shared[name] for name in ("item_id", "group_id", "policy_version", "renderer_digest", "temperature", "tokens")}
    fields |= {"pair_id": "t0:t1", "strategy": "all-margin", "margin": 0.5, "chosen_id": "t0", "rejected_id": "t1"}
    fields |= dict.fromkeys(("session_id", "user_id", "tools", "origin", "extra"))
    fields |= {"prompt_tokens": 4, "weight": 1.0, "prompt": _MESSAGES[:1], "chosen": _MESSAGES[1:], "rejected": _MESSAGES[3:]}
    fields |= {"chosen_token_ids": shared["token_ids"], "chosen_loss_mask": shared["loss_mask"]}
    return fields | {"rejected_token_ids": [1, 2, 3, 4, 9], "rejected_loss_mask": [False, False, False, False, True]}


def _token_scores() -> Row:
    """Two trained tokens, two of the vocabulary compared at each."""
    fields = {"row_id": "t0", "reference": [-0.5, -1.0], "proximal": [-0.25, -2.0], "teacher": [-0.125, -4.0]}
    return fields | {
        "top_k": 2,
        "top_tokens": [5, 6, 8, 9],
        "top_teacher": [-0.125, -3.0, -4.0, -0.5],
        "hint": 0,
        "taught": [True, False],
    }


def _eval_result() -> Row:
    fields = {"policy_version": "p0", "item_id": "i0", "slice": "stock", "trajectory_id": "t0", "success": True}
    return fields | {"value": 1.0, "error": None, "seed": 7}


def _quarantine() -> Row:
    return {"dataset": "trajectories", "row_id": "t0", "reasons": ["seed: required"], "row": "{}"}


_VALID = {
    "task_items": _item,
    "trajectories": _trajectory,
    "scores": _score,
    "samples": _sample,
    "preference_pairs": _preference_pair,
    "token_scores": _token_scores,
    "eval_results": _eval_result,
    "quarantine": _quarantine,
}


@pytest.fixture
def valid() -> Callable[..., Row]:
    """`valid(contract, **fields)`: a row that keeps the contract but for the fields given."""
    return lambda contract, **fields: _VALID[contract]() | fields


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


@pytest.fixture
def publish(store: Store) -> Callable[..., DatasetRef]:
    """`publish(contract, *parts)`: a dataset with one file a list of rows."""
    return lambda contract, *parts: publish_dataset(
        store,
        contract,
        [pa.Table.from_pylist(list(part), schema=schema_of(contract)) for part in parts],
        schema_version=newest_version(contract),
    )
