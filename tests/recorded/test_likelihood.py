"""Likelihoods of held-out conversations and pairs, beside the log-softmax of the model's own forward."""

from __future__ import annotations

import pyarrow as pa
import pytest
import torch

from clawpipe.core.contracts.schema import schema_of
from clawpipe.core.store.datasets import publish_dataset, read_dataset
from clawpipe.learn.evaluation.heldout.likelihood import score_conversations, score_pairs
from clawpipe.model.policy.base import resolve_base
from clawpipe.model.policy.load import load_base

pytestmark = pytest.mark.trains


def forward(ids: list[int], mask: list[bool]) -> float:
    """The mean log-prob of the masked tokens, by the definition."""
    model = load_base(resolve_base("random").path, "float32", torch.device("cpu"))
    with torch.no_grad():
        logits = model(input_ids=torch.tensor([ids])).logits[0].log_softmax(-1)
    scored = [logits[place - 1, token].item() for place, (token, asked) in enumerate(zip(ids, mask, strict=True)) if asked]
    return sum(scored) / len(scored)


def test_the_likelihood_of_a_conversation_is_that_of_its_replies(store, pool, base, trained, talks, published):
    """Recorded or rendered, at temperature 1 whatever it was sampled at."""
    rows = talks.sampled(3, 0.5)
    text = rows[2] | {"tokens": "none", "rendered_ids": rows[2]["token_ids"], "rendered_mask": rows[2]["loss_mask"]}
    drawn = published([*rows[:2], text | {"token_ids": [], "loss_mask": [], "logprobs": [], "turns": []}])
    first = score_conversations(store, pool, drawn, base, None)
    found = read_dataset(store, first.dataset).to_pylist()
    expected = [forward(row["token_ids"], row["loss_mask"]) for row in rows]
    assert [row["value"] for row in found] == pytest.approx(expected, abs=1e-4)
    assert first.details == {"success": 0, "items": 3, "log_prob": pytest.approx(sum(expected) / 3, abs=1e-4)}
    second = score_conversations(store, pool, drawn, trained, first.dataset)
    after = read_dataset(store, second.dataset).to_pylist()
    assert [row["success"] for row in after] == [new["value"] > old["value"] for new, old in zip(after, found, strict=True)]
    assert {row["value"] for row in after} != {row["value"] for row in found}


def test_a_pair_is_right_where_the_chosen_side_is_likelier(store, pool, base, talks):
    rows = talks.sampled(2, 1.0)
    sides = [{"token_ids": row["token_ids"], "loss_mask": row["loss_mask"]} for row in rows]
    values = [forward(**{"ids": side["token_ids"], "mask": side["loss_mask"]}) for side in sides]

    def pair(name: str, chosen: int, rejected: int) -> dict:
        numbered = {"chosen": sides[chosen], "rejected": sides[rejected]}
        streams = {f"{side}_{name}": value for side, of_side in numbered.items() for name, value in of_side.items()}
        return {"pair_id": name, "item_id": "i", "tokens": "recorded"} | streams

    table = pa.Table.from_pylist([pair("a", 0, 1), pair("b", 1, 0)], schema_of("preference_pairs"))
    result = score_pairs(store, pool, publish_dataset(store, "preference_pairs", [table]), base)
    found = {row["item_id"]: (row["value"], row["success"]) for row in read_dataset(store, result.dataset).to_pylist()}
    margin = values[0] - values[1]
    assert found["a"] == (pytest.approx(margin, abs=1e-4), margin > 0)
    assert found["b"] == (pytest.approx(-margin, abs=1e-4), margin < 0)
    assert result.details["success"] == 1
