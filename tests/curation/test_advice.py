"""What a night says that has nothing to learn from."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from clawpipe.core.store.refs import DatasetRef, StepResult
from clawpipe.data.curation.advice import nothing_to_learn, remedy

SQL = "\n".join(path.read_text() for path in Path("clawpipe/data/curation/sql").glob("[0-9]*.sql"))
NO_SETTING = {"duplicate", "trajectory given twice", "pair given twice"}  # the same row is there already


def test_every_reason_that_curation_gives_has_a_remedy() -> None:
    reasons = set(re.findall(r"(?:then|else) '([a-z][^']+)'(?! *then)", SQL)) - {"rendered", "text", "completed", "truncated"}
    assert len(reasons) > 30
    unknown = remedy("no reason at all", "grpo")
    assert {reason for reason in reasons if remedy(reason, "grpo") == unknown} <= NO_SETTING


def test_what_was_filtered_is_counted_over_all_steps_and_rounds() -> None:
    results = [
        StepResult(filtered={"too long": 2, "duplicate": 1}),
        StepResult(rows_in=3, rows_out=3),
        StepResult(filtered={"zero-variance group": 3, "too long": 2}),
    ]
    error = nothing_to_learn(results, "grpo")
    assert error.exit_code == 65
    assert "8 rows" in error.what
    assert "(4 x too long, 3 x zero-variance group, 1 x duplicate)" in error.what
    assert "curation.max_tokens" in error.fix


def test_rows_whose_verifier_raised_are_counted_once() -> None:
    raised = StepResult(filtered={"scorer verifier/mine: KeyError": 4})
    error = nothing_to_learn([raised, StepResult(filtered={"no verifier score": 5})], "sft")
    assert "5 rows" in error.what
    assert "verify.log" in error.fix


def test_episodes_that_failed_without_a_token_are_counted_once() -> None:
    failed = StepResult(filtered={"scorer verifier/agent: FailedEpisodeError": 6})
    error = nothing_to_learn(
        [failed, StepResult(filtered={"tokens not recorded": 4, "no verifier score": 2, "too long": 1})], "grpo"
    )
    assert "7 rows" in error.what
    assert "episodes" in error.fix


def test_a_night_with_too_few_rows_says_how_many_there_were() -> None:
    few = StepResult(output=DatasetRef(name="samples", digest="s", rows=3), rows_in=9, rows_out=3, filtered={"too long": 6})
    error = nothing_to_learn([few], "grpo", least=10)
    assert error.exit_code == 65
    assert "3 rows are left to train on, and curation.min_samples asks for 10" in error.what
    assert "6 rows were filtered" in nothing_to_learn([few.model_copy(update={"rows_out": 0})], "grpo", least=10).what


@pytest.mark.parametrize(
    ("reason", "method", "setting"),
    [
        ("no verifier score", "sft", "curation.imitate"),
        ("no verifier score", "dpo", "--labels"),
        ("zero-variance group, no hint", "combine", "rollouts.temperature"),
        ("constant group, no hint", "combine", "rollouts.temperature"),  # in records of earlier nights
        ("tokens not recorded", "grpo", "train.method"),
        ("near-duplicate", "sft", "curation.near"),
    ],
)
def test_the_remedy_is_the_setting_that_keeps_such_rows(reason: str, method: str, setting: str) -> None:
    assert setting in remedy(reason, method)


def test_a_night_without_rows_is_told_so() -> None:
    assert "no row came in" in nothing_to_learn([], "dpo").what
