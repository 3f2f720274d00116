"""Several environments in one night: how they share its items, and what is refused."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from clawpipe.core.config.environment import DrawnEnvironments, EnvironmentConfig
from clawpipe.core.config.night import NightConfig
from clawpipe.core.config.quotas import quotas, rounds_of

WEIGHTS = st.lists(st.integers(1, 50).map(lambda tenths: tenths / 10), min_size=1, max_size=6)


@pytest.mark.parametrize(
    ("total", "weights", "expected"),
    [
        (10, [0.7, 0.3], [7, 3]),
        (7, [1, 1, 1], [3, 2, 2]),  # of equal remainders the first comes first
        (60, [3, 1], [45, 15]),
        (5, [2, 1], [3, 2]),  # 3.33 and 1.67
        (10, [0.1, 0.2], [3, 7]),  # 3.33 and 6.67
        (3, [5.0], [3]),
    ],
)
def test_quotas_are_by_largest_remainder(total, weights, expected):
    assert quotas(total, weights) == expected


@given(st.integers(0, 300), WEIGHTS)
def test_quotas_sum_up_and_are_within_one_of_the_share(total, weights):
    found, exact = quotas(total, weights), [Fraction(repr(weight)) for weight in weights]
    assert sum(found) == total
    assert all(abs(quota - total * weight / sum(exact)) < 1 for quota, weight in zip(found, exact, strict=True))


@given(st.integers(1, 40), st.integers(1, 6), WEIGHTS)
def test_rounds_sum_up_to_the_night(items, rounds, weights):
    found = rounds_of(items, rounds, weights)
    assert [sum(one) for one in found] == [items] * rounds
    assert [sum(counts) for counts in zip(*found, strict=True)] == quotas(items * rounds, weights)


def test_even_shares_are_even_in_every_round():
    assert rounds_of(16, 3, [3, 1]) == [[12, 4]] * 3
    assert rounds_of(5, 4, [1, 1]) == [[3, 2], [2, 3], [3, 2], [2, 3]]


def test_a_list_of_one_is_the_short_form():
    short = NightConfig.model_validate({"environment": {"name": "letters", "options": {"a": 1}, "train_items": 40}})
    listed = NightConfig.model_validate(
        {"environment": {"train_items": 40}, "environments": [{"name": "letters", "options": {"a": 1}}]}
    )
    assert listed.drawn == short.drawn == short.environment
    assert isinstance(listed.drawn, EnvironmentConfig)


def test_several_share_the_counts():
    drawn = NightConfig.model_validate({"environments": ["shop", {"name": "letters", "weight": 3}]}).drawn
    assert isinstance(drawn, DrawnEnvironments)
    assert ([part.name for part in drawn.parts], drawn.weights, drawn.heldout_items) == (["shop", "letters"], [1.0, 3.0], 160)


def test_settings_are_read_as_they_are_written():
    config = NightConfig.model_validate({"environments": ["shop", {"name": "letters", "weight": 3, "label": "abc"}]})
    assert NightConfig.model_validate(config.model_dump(mode="json")) == config


def test_one_environment_leaves_nights_their_names():
    assert "environments" not in NightConfig().result_fields()
    assert "environments" in NightConfig.model_validate({"environments": ["shop", "letters"]}).result_fields()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"environments": ["shop", "shop"]}, r"environments\[1\] is environments\[0\] again, shop with the same options"),
        ({"environments": ["a.py:A", "./a.py:A"]}, "again, ./a.py:A with the same options"),
        ({"environments": ["shop", {"name": "letters", "weight": 0}]}, "environments.1.weight"),
        ({"environments": ["shop", {"name": "letters", "weight": -1}]}, "environments.1.weight"),
        (
            {"environments": ["shop", {"name": "letters", "weight": 0.001}]},
            r"\(128\) leaves letters with its weight 0.001 .* no item",
        ),
        ({"environments": ["shop", "letters"], "rollouts": {"items": 1}}, r"rollouts.items \(1\) leaves letters"),
        ({"environments": ["shop", "conversations"]}, "conversations has no tasks"),
        ({"environments": ["shop", "letters"], "environment": {"name": "tastes"}}, "leave environment.name out"),
        ({"environments": ["shop", "letters"], "environment": {"python": "/bin/python"}}, "leave environment.python out"),
        ({"environments": [{"name": "shop", "label": "a"}, {"name": "letters", "label": "a"}]}, "two .* have the label 'a'"),
        ({"environments": [{"name": "shop", "label": "a/b"}, "letters"]}, "environments.0.label"),
        ({"environments": [{"weight": 2}, "letters"]}, "environments.0.name"),
    ],
)
def test_environments_that_cannot_be_together_are_refused(settings, message):
    with pytest.raises(ValidationError, match=message):
        NightConfig.model_validate(settings)
