"""The decision whether a hinted teacher is good enough to learn from."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clawpipe.core.config.training import Opd
from clawpipe.errors import DataError
from clawpipe.learn.evaluation.teacher import Pair, judge_teacher, refusal

PAIRS = st.lists(st.builds(Pair, st.sampled_from([0.0, 1.0]), st.sampled_from([0.0, 0.25, 0.5, 1.0])), min_size=8, max_size=40)


def test_figures_by_hand():
    # gains 1, 0.5, 0, -0.5, four times over: mean 0.25
    pairs = [Pair(1, 0), Pair(1, 0.5), Pair(1, 1), Pair(0, 0.5)] * 4
    figures = judge_teacher(pairs, min_gain=0.1)
    gains = [1, 0.5, 0, -0.5] * 4
    assert figures["gain"] == pytest.approx(0.25)
    assert figures["gain_low"] == pytest.approx(0.25 - 1.6448536 * np.std(gains, ddof=1) / 4, abs=1e-6)
    assert (figures["teacher_success"], figures["student_success"], figures["n"]) == (0.75, 0.5, 16)
    assert figures["teacher_where_student_fails"] == pytest.approx(1.5 / 2)  # 1 + 0.5 + 0 of 1 + 0.5 + 0 + 0.5 failures
    assert figures["allowed"]


@pytest.mark.parametrize(
    ("pairs", "allowed"),
    [
        ([Pair(1, 0)] * 8, True),
        ([Pair(1, 0)] * 7, False),  # too few to say
        ([Pair(1, 0.95)] * 100, False),  # for sure, but hardly
        ([Pair(1, 0), Pair(0, 0.7)] * 8, False),  # 0.15 on average, but it may be chance
        ([Pair(0, 0.5)] * 8, False),
        ([], False),
    ],
)
def test_a_teacher_has_to_be_clearly_better(pairs, allowed):
    assert judge_teacher(pairs, min_gain=0.1)["allowed"] is allowed


def test_what_cannot_be_computed_is_absent():
    assert judge_teacher([], 0.1) == {"allowed": False, "n": 0}
    assert "gain_low" not in judge_teacher([Pair(1, 0)], 0.1)
    assert "teacher_where_student_fails" not in judge_teacher([Pair(1, 1)] * 9, 0.1)


@given(PAIRS, st.floats(0, 1))
def test_order_has_no_influence_and_a_better_teacher_never_hurts(pairs, min_gain):
    figures = judge_teacher(pairs, min_gain)
    backwards = judge_teacher(pairs[::-1], min_gain)
    assert figures["allowed"] == backwards["allowed"]
    assert figures["gain"] == pytest.approx(backwards["gain"])
    perfect = [Pair(1.0, pair.student) for pair in pairs]
    assert judge_teacher(perfect, min_gain)["gain"] >= figures["gain"] - 1e-6
    assert math.isclose(figures["gain"], figures["teacher_success"] - figures["student_success"], abs_tol=2e-6)


def test_no_gain_is_hardly_ever_let_pass():
    """Under the null (both succeed half of the time) the bound holds in 95 %; the least gain makes errors rarer still."""
    generator = np.random.default_rng(0)
    passed = 0
    for _ in range(400):
        teacher, student = generator.random(32) < 0.5, generator.binomial(8, 0.5, 32) / 8
        passed += judge_teacher([Pair(float(t), float(s)) for t, s in zip(teacher, student, strict=True)], 0.1)["allowed"]
    assert passed / 400 < 0.09


def test_a_refusal_tells_the_figures_and_what_to_do():
    error = refusal(judge_teacher([Pair(1, 0), Pair(0, 0.9)] * 8, 0.1), Opd())
    assert isinstance(error, DataError)
    assert "50% of 16 items" in error.what
    assert "the student on 45%" in error.what
    assert "demonstration" in error.fix
    assert "grpo" in error.fix
    assert "only 3 of" in refusal(judge_teacher([Pair(1, 0)] * 3, 0.1), Opd()).what
