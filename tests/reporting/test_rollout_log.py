"""Rollouts of a round as text, by a decoder that a reader can check: a token is a letter."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from clawpipe.core.basics.json_types import Row
from clawpipe.core.contracts.schema import schema_of
from clawpipe.core.store.artifacts import Store
from clawpipe.core.store.datasets import publish_dataset
from clawpipe.core.store.refs import DatasetRef
from clawpipe.record.reporting.rollout_log import write_rollout_log

ROW = {
    **{"group_id": "g", "environment": "letters", "split": "train", "source": "rollout", "seed": 0, "policy_version": "4f0c"},
    **{"renderer_digest": "r", "prompt_tokens": 2, "turns": [], "temperature": 0.8, "finish_reason": "stop"},
    **{"tokens": "recorded", "messages": []},
}
SAID = [
    {"role": "user", "content": "how many?", "tool_calls": []},
    {
        **{"role": "assistant", "content": "Let me see."},
        "tool_calls": [{"id": "c", "name": "stock", "arguments": '{"item": "lamp"}', "malformed": False}],
    },
]


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


def decode(ids) -> str:
    return "".join(map(chr, ids))


def published(store: Store, name: str, rows: list[Row]) -> DatasetRef:
    return publish_dataset(store, name, [pa.Table.from_pylist(rows, schema=schema_of(name))])


def rollout(number: int, text: str, sampled: str, **fields) -> Row:
    """`sampled` has an s under each sampled letter, whose log-probs are -1, -2 and so on."""
    mask = [one == "s" for one in sampled]
    logprobs = [-float(sum(mask[: place + 1])) if one else 0.0 for place, one in enumerate(mask)]
    tokens = {"token_ids": [ord(one) for one in text], "loss_mask": mask, "logprobs": logprobs}
    return ROW | {"trajectory_id": f"t{number}", "item_id": f"i{number}", "rollout_index": number} | tokens | fields


def test_what_was_read_sampled_and_judged_stands_in_its_order(store, tmp_path):
    rows = published(store, "trajectories", [rollout(0, "ab\ncdE", "...ss.", error="out of time", status="timeout")])
    scores = [
        {"trajectory_id": "t0", "turn": None, "scorer": "letters", "origin": "verifier", "value": 0.25, "success": False},
        {"trajectory_id": "t0", "turn": 1, "scorer": "judge", "origin": "judge", "value": 1.0, "reason": "polite"},
        {"trajectory_id": "other", "turn": None, "scorer": "letters", "origin": "verifier", "value": 1.0},
    ]
    file = tmp_path / "logs" / "rollouts-1.log"
    assert write_rollout_log(store, file, rows, [published(store, "scores", scores)], decode, 4) == 1
    assert file.read_text().splitlines() == [
        "1 of 1 rollouts",
        "",
        "==== item i0, rollout 0 of its group, policy 4f0c",
        "---- read, 3 tokens",
        "ab",
        "",
        "---- sampled at 0.8, mean log-prob -1.500, 2 tokens",
        "cd",
        "---- read, 1 tokens",
        "E",
        "---- ended: stop, timeout, out of time",
        "---- score letters: 0.25, success false",
        "---- score judge of turn 1: 1: polite",
    ]


def test_rollouts_of_an_endpoint_are_their_messages(store, tmp_path):
    text = {"tokens": "none", "messages": SAID, "token_ids": None, "loss_mask": None, "logprobs": None, "temperature": None}
    rows = published(store, "trajectories", [rollout(0, "", "", **text, policy_version=None)])
    write_rollout_log(store, tmp_path / "log", rows, [], decode, 1)
    assert (tmp_path / "log").read_text().splitlines()[2:8] == [
        "==== item i0, rollout 0 of its group, policy unknown",
        "---- user",
        "how many?",
        "---- assistant",
        "Let me see.",
        'stock({"item": "lamp"})',
    ]


def test_some_are_spread_over_the_round(store, tmp_path):
    rows = published(store, "trajectories", [rollout(number, "ab", ".s") for number in range(10)])
    assert write_rollout_log(store, tmp_path / "log", rows, [], decode, 3) == 3
    shown = [line.split(",")[0] for line in (tmp_path / "log").read_text().splitlines() if line.startswith("====")]
    assert shown == ["==== item i0", "==== item i3", "==== item i6"]


def test_a_terminal_obeys_nothing_that_a_policy_wrote(store, tmp_path):
    rows = published(store, "trajectories", [rollout(0, "a\x1b[2Jb", ".sssss")])
    write_rollout_log(store, tmp_path / "log", rows, [], decode, 1)
    assert "\x1b" not in (tmp_path / "log").read_text()
