"""Whatever the order of the filters, and whatever door a row enters by, the same rows teach."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from clawpipe.core.config.curation import Curation
from clawpipe.core.contracts.odcs import newest_version
from clawpipe.core.contracts.schema import schema_of
from clawpipe.core.store.datasets import publish_dataset
from clawpipe.data.curation import steps
from clawpipe.data.curation.runner import curate
from clawpipe.data.curation.stored_pairs import join_pairs

QUICK = settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
HELD = "How many iron kettles and copper pans are in stock today?"
VERSIONS = ["new", "old", "older"]
ROW_FILTERS = ["20_filter", "22_quality", "25_staleness", "30_decontaminate", "35_canary"]
QUESTIONS = [
    "hi",
    "hello, how are you",
    HELD,
    f"Please tell me {HELD[:-1]}",
    f"{HELD.upper()} Thanks!",
    "How many tin kettles and copper pans are in stock today?",
    "say CANARY-7f3",
    "another question",
]
ANSWERS = ["Hello!", "57", "a canary-7F3 of mine", "a long answer about nothing in particular", "\u4f60\u597d"]


ASKED = st.lists(st.tuples(st.sampled_from(QUESTIONS), st.sampled_from(ANSWERS), st.sampled_from(VERSIONS)), max_size=8)
CURATION = st.builds(
    Curation,
    canaries=st.sampled_from([(), ("CANARY-7f3",), ("CANARY-7f3", "a2")]),
    max_staleness=st.sampled_from([None, 0, 1]),
    filters=st.sampled_from([{}, {"scripts": ["Latin"]}, {"min_tokens": 5}]),
)


def hold_out(tables) -> None:
    tables.item("h", HELD, split="heldout")
    tables.item("g", "hi", split="heldout")
    tables.items[-1] |= {"environment": "conversations", "truth": json.dumps({"dialogue": "hi\nHello!"})}


def fill(tables, asked: Sequence[tuple[str, str, str]], say) -> None:
    """A success and a failure for each question, as another source recorded them."""
    tables.trajectories, tables.scores, tables.items = [], [], []
    hold_out(tables)
    for number, (question, answer, version) in enumerate(asked):
        facts = {"group_id": f"g{number}", "policy_version": version, "source": "imported"}
        for index, text in enumerate((answer, f"not {number}")):
            messages = [say("user", question), say("assistant", text)]
            tables.rollout(f"a{number}", index, 1.0 - index, messages=messages, **facts)


def curated(tables, config: Curation, method: str) -> list[dict]:
    refs = [tables.publish(name, rows) for name, rows in (("trajectories", tables.trajectories), ("scores", tables.scores))]
    items = tables.publish("task_items", tables.items)
    result = curate(tables.store, refs[:1], refs[1:], items, config, method, versions=VERSIONS, threads=1)
    return tables.rows(result)


@given(asked=ASKED, config=CURATION, order=st.permutations(ROW_FILTERS))
@QUICK
def test_filters_in_any_order_leave_the_same_rows(asked, config, order, tables, say):
    fill(tables, asked, say)
    usual = curated(tables, config, "ppo")
    names = steps.step_names("ppo")
    first = names.index(ROW_FILTERS[0])
    others = [name for name in names if name not in ROW_FILTERS]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(steps, "step_names", lambda _: [*others[:first], *order, *others[first:]])
        patch.setattr("clawpipe.data.curation.runner.stays_within_groups", lambda *_: False)  # or the result of before is kept
        assert curated(tables, config, "ppo") == usual


@given(asked=ASKED, config=CURATION)
@QUICK
def test_pairs_teach_the_same_by_either_door(asked, config, tables, say):
    """As trajectories of which the night makes pairs, or as pairs that are stored."""
    config = config.model_copy(update={"filters": Curation().filters})  # which look at trajectories
    fill(tables, asked, say)
    made = {row["item_id"] for row in curated(tables, config, "dpo")}
    pairs = [as_pair(*rows) for rows in zip(*[iter(tables.trajectories)] * 2, strict=True)]
    table = pa.Table.from_pylist(pairs, schema_of("preference_pairs"))
    stored = publish_dataset(tables.store, "preference_pairs", [table], schema_version=newest_version("preference_pairs"))
    joined = join_pairs(tables.store, [], [stored], tables.publish("task_items", tables.items), config, versions=VERSIONS)
    assert {row["item_id"] for row in tables.rows(joined)} == made
    assert joined.rows_in == joined.rows_out + sum(joined.filtered.values())


def as_pair(chosen: dict, rejected: dict) -> dict:
    names = ("item_id", "group_id", "policy_version")
    ids = {"pair_id": chosen["item_id"], "chosen_id": chosen["trajectory_id"], "rejected_id": rejected["trajectory_id"]}
    sides = {"prompt": chosen["messages"][:1], "chosen": chosen["messages"][1:], "rejected": rejected["messages"][1:]}
    streams = {f"{side}_{stream}": [] for side in ("chosen", "rejected") for stream in ("token_ids", "loss_mask")}
    facts = {"strategy": "imported", "weight": 1.0, "temperature": 0.0, "tokens": "none", "prompt_tokens": 0, "margin": 1.0}
    return {name: chosen[name] for name in names} | ids | sides | streams | facts
