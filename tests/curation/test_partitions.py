"""Partitions: what was decided about old datasets is taken over, and nothing that was decided differs for it."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from clawpipe.core.config.curation import Curation, Filters, Pairs, Quotas, Sampling
from clawpipe.core.config.methods import METHODS
from clawpipe.core.store.datasets import dataset_files, publish_dataset
from clawpipe.core.store.notes import Notes
from clawpipe.data.curation import partitions, runner
from clawpipe.data.curation.joined_tables import LAYOUTS
from clawpipe.data.curation.partitions import NAME, _first_of
from clawpipe.data.curation.runner import curate
from clawpipe.data.curation.steps import step_names
from clawpipe.errors import DataError

SETTINGS = {
    "grpo": Curation(),
    "sft": Curation(filters=Filters(max_repetition=0.9)),
    "dpo": Curation(pairs=Pairs(strategy="same-prefix", corrections=True)),
    "ppo": Curation(),
}


def night(tables, name, *items, **fields):
    """A dataset of trajectories of these items' groups, and one of their scores."""
    tables.trajectories, tables.scores = [], []
    for item in items:
        for index in range(3):
            tables.rollout(
                item, index, float(index == 1), text=f"{index} to {item}", trajectory_id=f"{name}-{item}-{index}", **fields
            )
    return tables.publish("trajectories", tables.trajectories), tables.publish("scores", tables.scores)


@pytest.fixture(autouse=True)
def each(monkeypatch):
    """No partition is a small one."""
    monkeypatch.setattr(partitions, "_SMALL", 0)


@pytest.fixture
def nights(tables):
    """Three nights that have nothing in common."""
    tables.item("a", "about a?")
    return [night(tables, "first", *"cab"), night(tables, "second", *"fed"), night(tables, "third", *"hg")]


@pytest.fixture
def decided(monkeypatch):
    """Of each batch that went through the steps, how many row_ranges of rows it had."""
    seen, decide = [], runner.decide
    monkeypatch.setattr(runner, "decide", lambda *told: seen.append(len(told[1].row_ranges)) or decide(*told))
    return seen


def curated(tables, nights, /, method="grpo", config=None, **options):
    items = tables.publish("task_items", tables.items)
    datasets, scores = zip(*nights, strict=True)
    return curate(tables.store, datasets, scores, items, config or SETTINGS[method], method, threads=1, **options)


def forget_decisions(tables):
    shutil.rmtree(Notes(tables.store, NAME).directory)


@pytest.mark.parametrize("method", SETTINGS)
def test_only_a_new_dataset_is_curated_with_an_equal_result(method, tables, nights, decided):
    curated(tables, nights[:2], method)
    assert decided == [1, 1]
    added = curated(tables, nights, method)
    assert decided == [1, 1, 1]
    forget_decisions(tables)
    assert curated(tables, nights, method) == added
    assert decided == [1] * 6
    assert added.rows_out


@pytest.mark.parametrize("method", SETTINGS)
def test_partitions_give_the_rows_and_figures_of_one_batch(method, tables, nights, decided):
    apart = curated(tables, nights, method)
    assert tables.agrees_with_one_batch(apart, lambda: curated(tables, nights, method))
    assert decided == [1, 1, 1, 3]


def test_rows_are_ordered_by_partition_then_by_group(tables, nights):
    assert tables.kept(curated(tables, nights))[::3] == [f"{night}-0" for night in (
        "first-a", "first-b", "first-c", "second-d", "second-e", "second-f", "third-g", "third-h"
    )]  # fmt: skip


@pytest.mark.parametrize(
    ("method", "fields", "batches"),
    [
        ("grpo", {}, [1, 1, 2]),  # a group of the first night goes on in the fourth
        ("dpo", {"group_id": "other"}, [1, 1, 2]),  # answers to the same prompt, which may contradict each other
        ("grpo", {"group_id": "other"}, [1, 1, 2]),  # the same draw stored twice
        ("grpo", {"group_id": "other", "policy_version": "p1"}, [1, 1, 1, 1]),
        ("sft", {"group_id": "other", "policy_version": "p1"}, [1, 1, 2]),  # the same conversation
    ],
)
def test_datasets_that_a_step_may_compare_are_decided_together(method, fields, batches, tables, nights, decided):
    nights.append(night(tables, "fourth", "a", **fields))
    curated(tables, nights, method)
    assert sorted(decided) == batches


def test_a_trajectory_given_twice_counts_once_across_datasets(tables, nights, decided):
    twice = night(tables, "first", "a", group_id="other", messages=[])
    result = curated(tables, [*nights, twice], "dpo")
    assert sorted(decided) == [1, 1, 2]
    assert result.filtered["trajectory given twice"] == 3


def test_scores_are_those_of_all_datasets_that_hold_any(tables, nights, decided):
    tables.trajectories, tables.scores = [], []
    tables.score("first-a-1", 0.0)
    tables.score("nobody", 1.0)
    late = tables.publish("scores", tables.scores)
    [datasets, scores] = zip(*nights, strict=True)
    items = tables.publish("task_items", tables.items)

    def night(*given):
        return curate(tables.store, datasets, given, items, Curation(), "grpo", threads=1)

    night(*scores)
    result = night(*scores, late)
    assert decided == [1] * 3 + [1]  # the late ones are of the first night alone
    assert (result.filtered, late.digest in result.dataset.parents) == ({"zero-variance group": 3}, True)


def test_trajectories_without_scores_need_no_dataset_of_them(tables, nights):
    datasets, scores = zip(*nights, strict=True)
    items = tables.publish("task_items", tables.items)
    result = curate(tables.store, datasets, scores[1:2], items, Curation(), "grpo", threads=1)
    assert result.filtered == {"no verifier score": 9 + 6}


@pytest.mark.parametrize(
    ("method", "config"),
    [
        ("grpo", Curation(quotas=Quotas(per_item=1))),
        ("grpo", Curation(sampling=Sampling(rows=2))),
        ("grpo", Curation(advantage="batch")),
        ("grpo", Curation(credit="turn", turn_baseline=0.5)),
        ("sft", Curation(quotas=Quotas(session_share=0.5))),
        ("grpo", Curation(max_staleness=1)),
        ("dpo", Curation(pairs=Pairs(strategy="on-policy"))),
    ],
)
def test_steps_that_look_at_the_whole_batch_see_it(method, config, tables, nights, decided):
    curated(tables, nights, method, config, versions=["p0"])
    assert decided == [3]
    assert not list(Notes(tables.store, NAME))


def test_what_other_steps_have_found_is_in_no_note(tables, nights, decided):
    near = publish_dataset(tables.store, "near_heldout", [LAYOUTS["near_heldout"].empty_table()])
    curated(tables, nights, near=[near])
    assert decided == [3]


@pytest.mark.parametrize(
    "change",
    [
        {"config": Curation(max_tokens=9)},
        {"weights": (1.0, 1.0)},
        {"hint": "demonstration"},
    ],
)
def test_another_question_is_decided_anew(change, tables, nights, decided):
    curated(tables, nights)
    curated(tables, nights, **change)
    assert decided == [1] * 6


def test_other_items_are_decided_anew(tables, nights, decided):
    first = curated(tables, nights)
    tables.item("b", "about b?", split="heldout")
    assert curated(tables, nights).filtered["held-out item"] == first.filtered.get("held-out item", 0) + 3
    assert decided == [1] * 6


def test_nothing_to_train_on_is_an_answer_that_is_kept(tables, nights, decided):
    empty, some = (night(tables, name, item) for name, item in (("fourth", "x"), ("fifth", "y")))
    strict = Curation(filters=Filters(min_score=2.0))
    result = curated(tables, [empty, some], config=strict)
    assert (result.rows_out, result.filtered) == (0, {"score out of range": 6})
    assert curated(tables, [empty, some], config=strict) == result
    assert decided == [1, 1]


def test_the_whole_links_the_files_of_its_partitions(tables, nights):
    whole = dataset_files(tables.store, curated(tables, nights).dataset)
    parts = [file for note in Notes(tables.store, NAME) for file in dataset_files(tables.store, note.dataset)]
    assert {file.stat().st_ino for file in whole} == {file.stat().st_ino for file in parts}


def test_what_is_damaged_is_decided_again(tables, nights, decided):
    whole = curated(tables, nights)
    first, second, third = (note.dataset for note in Notes(tables.store, NAME))
    shutil.rmtree(tables.store.path(first))
    (file,) = dataset_files(tables.store, second)
    file.write_bytes(b"PAR1")  # a link: the whole is damaged as well
    next(path for path in Notes(tables.store, NAME).directory.iterdir() if third.digest in path.read_text()).write_text("{")
    assert curated(tables, nights) == whole
    assert decided == [1] * 6
    assert tables.kept(whole)


def test_missing_trajectories_are_reported_despite_a_note(tables, nights):
    curated(tables, nights)
    tables.store.remove(nights[0][0])
    with pytest.raises(DataError, match="missing or damaged"):
        curated(tables, nights)


@pytest.mark.parametrize(("moment", "left"), [("partitions.before_note#2", 0), ("ordering.before_read#2", 3)])
def test_a_kill_between_partitions_leads_to_the_same_bytes(moment, left, tables, nights, decided):
    items = tables.publish("task_items", tables.items)
    told = [[ref.model_dump_json() for ref in refs] for refs in zip(*nights, strict=True)]
    code = f"""
from pathlib import Path
from clawpipe.core.config.curation import Curation
from clawpipe.data.curation import partitions
from clawpipe.data.curation.runner import curate
from clawpipe.core.store.artifacts import Store
from clawpipe.core.store.refs import DatasetRef
partitions._SMALL = 0
datasets, scores = ([DatasetRef.model_validate_json(ref) for ref in refs] for refs in {told!r})
items = DatasetRef.model_validate_json({items.model_dump_json()!r})
curate(Store(Path({str(tables.store.root)!r})), datasets, scores, items, Curation(), "grpo", threads=1)
"""
    environment = os.environ | {"CLAWPIPE_KILL_AT": moment}
    ended = subprocess.run([sys.executable, "-c", code], env=environment, check=False)
    assert ended.returncode == -signal.SIGKILL
    assert tables.store.sweep() == left  # where rows are put in order, where DuckDB spills, where the result is written
    again = curated(tables, nights)
    assert decided == [1, 1]
    forget_decisions(tables)
    assert curated(tables, nights) == again


def test_small_partitions_are_curated_together(tables, nights, decided, monkeypatch):
    apart = curated(tables, nights)
    monkeypatch.setattr(partitions, "_SMALL", 8)
    monkeypatch.setattr(partitions, "ROWS", 12)
    small = [night(tables, f"n{number}", *items) for number, items in enumerate(("ij", "klm", "n", "o", "pq"))]
    result = curated(tables, [nights[2], *nights[:2], *small])
    assert decided == [1, 1, 1, 2, 1, 3]  # those of 6 and 6 rows; the one of 9; those of 3, 3 and 6
    assert tables.kept(result)[:15:3] == ["third-g-0", "third-h-0", "n0-i-0", "n0-j-0", "first-a-0"]
    assert {row["trajectory_id"] for row in tables.rows(apart)} < set(tables.kept(result))


def test_sums_that_are_not_finite_are_remembered_as_they_were(tables, decided):
    datasets = []
    for name in ("first", "second"):
        trajectories, _ = night(tables, name, name)
        for score in tables.scores:
            score["value"] = 1.7e308 if score["value"] else 1.6e308
        datasets.append((trajectories, tables.publish("scores", tables.scores)))
    first = curated(tables, datasets)
    assert "reward_mean" not in first.details
    assert (curated(tables, datasets), decided) == (first, [1, 1])


def test_every_step_is_classified_as_within_a_partition_or_not():
    within = {
        *(
            "10_join",
            "15_outcome_scored",
            "15_ppo_scored",
            "20_filter",
            "22_quality",
            "25_staleness",
            "30_decontaminate",
            "35_canary",
        ),
        *("40_pairs_dedupe", "40_ratio_dedupe", "40_sft_imitate", "50_pairs_groups", "50_policy_signal", "50_sft_dedupe"),
        *("60_pairs_made", "60_kto_labels", "60_policy_advantages", "60_ppo_rewards", "60_sft_credit"),
        *("62_pairs_contradicted", "65_pairs_choice"),
    }
    assert {step for method in METHODS for step in step_names(method)} == within | partitions._BEYOND
    assert not within & partitions._BEYOND


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9))))
def test_what_is_joined_by_others_is_joined(pairs):
    first = _first_of(10, pairs)
    reached = [{place} for place in range(10)]
    for _ in range(10):
        for one, other in pairs:
            reached[one] = reached[other] = reached[one] | reached[other]
    closed = [set.union(*(its for its in reached if place in its)) for place in range(10)]
    assert first == [min(its) for its in closed]


_GROUPS = st.lists(st.lists(st.integers(0, 5), min_size=1, max_size=3), min_size=2, max_size=4)


@settings(max_examples=8, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(_GROUPS, st.sampled_from(sorted(SETTINGS)))
def test_whatever_datasets_share_the_rows_are_those_of_one_batch(tables, groups, method):
    """Each dataset has the groups of some items; items of several datasets have one group in all of them."""
    given_ = [night(tables, f"n{number}", *map(str, dict.fromkeys(items))) for number, items in enumerate(groups)]
    apart = curated(tables, given_, method)
    assert tables.agrees_with_one_batch(apart, lambda: curated(tables, given_, method))
