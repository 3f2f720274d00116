"""Which rows make up the batch."""

from collections import Counter
from hashlib import sha256

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from clawpipe.core.config.curation import Sampling
from clawpipe.errors import ConfigError


def lot(name):
    return int(sha256(name.encode()).hexdigest()[:32], 16)


def group(tables, item, *rewards, **fields):
    for index, reward in enumerate(rewards):
        tables.rollout(item, index, reward, **fields)


def sample(tables, method="ppo", versions=(), **sampling):
    result = tables.curate(method, versions=versions, sampling=sampling)
    assert result.rows_in == result.rows_out + sum(result.filtered.values())
    return result


def counts(tables, result, column="item_id"):
    of = {row["trajectory_id"]: row[column] for row in tables.trajectories}
    return Counter(of[name] for name in tables.kept(result))


@pytest.mark.parametrize(
    ("band", "items"),
    [
        ({"low": 0.25, "high": 0.75}, "bc"),
        ({"low": 0.5}, "cd"),
        ({"high": 0.0}, "a"),
        ({}, "abcd"),
    ],
)
def test_a_band_of_pass_rates(band, items, tables):
    for item, passed in zip("abcd", [0, 1, 2, 4], strict=True):
        group(tables, item, *[float(index < passed) for index in range(4)])
    tables.rollout("e", 0, None)
    tables.score("e-0", 1.0, turn=0)  # nobody verified it: it has no pass rate
    result = sample(tables, difficulty=band)
    assert "".join(counts(tables, result)) == items + "e"
    expected = {"outside the difficulty band": 4 * (4 - len(items))} if len(items) < 4 else {}
    assert result.filtered == expected


def test_pass_rates_count_all_rollouts_also_for_imitation(tables):
    group(tables, "a", 1.0, 0.0, 0.0, 0.0)
    group(tables, "b", 1.0, 1.0, 1.0, 0.0)
    assert counts(tables, sample(tables, "sft", difficulty={"high": 0.5})) == {"a": 1}


def test_a_curriculum_moves_the_band_from_night_to_night(tables):
    group(tables, "easy", 1.0, 1.0, 1.0, 0.0)
    group(tables, "hard", 1.0, 0.0, 0.0, 0.0)
    bands = [{"low": 0.5}, {"high": 0.5}]
    kept = [set(counts(tables, sample(tables, curriculum=bands, night=night))) for night in (1, 2, 3)]
    assert kept == [{"easy"}, {"hard"}, {"hard"}]


def kinds(tables):
    for item, name in {"a": "tool-call", "b": "tool-call", "c": "chat"}.items():
        tables.item(item, f"q {item}")
        tables.items[-1] |= {"kind": name, "slice": f"slice {item}"}
    group(tables, "a", 1.0, 1.0, 1.0)
    group(tables, "b", 1.0, 1.0, 1.0, environment="bank")
    group(tables, "c", 1.0, 1.0)


@pytest.mark.parametrize(
    ("balance", "cut", "of"),
    [("kind", 4, {"ab": 2, "c": 2}), ("slice", 2, {"a": 2, "b": 2, "c": 2}), ("environment", 2, {"ac": 3, "b": 3})],
)
def test_all_classes_have_as_many_rows_as_the_smallest(balance, cut, of, tables):
    kinds(tables)
    result = sample(tables, balance=balance)
    assert result.filtered == {f"beyond the balance of its {balance}": cut}
    kept = counts(tables, result)
    assert {items: sum(kept[item] for item in items) for items in of} == of


def test_a_batch_of_limited_size_is_dealt_out_in_turn(tables):
    kinds(tables)
    result = sample(tables, balance="kind", rows=7)  # two of chat are all there are
    kept = counts(tables, result)
    assert (kept["a"] + kept["b"], kept["c"]) == (5, 2)
    assert result.filtered == {"beyond the size of the batch": 1}


def test_a_draw_takes_whole_groups_as_far_as_it_can(tables):
    for item in "abcd":
        group(tables, item, 0.0, 1.0, 0.0)
    kept = counts(tables, sample(tables, "grpo", rows=7))
    order = sorted("abcd", key=lambda item: lot(f"{item}/p0"))
    assert kept == {order[0]: 3, order[1]: 3, order[2]: 1}


def test_what_stays_of_a_group_keeps_its_advantage(tables):
    group(tables, "a", 0.0, 1.0, 0.0, 1.0)
    result = tables.curate("grpo", advantage="none", sampling={"rows": 1})
    assert [abs(row["advantages"][3]) for row in tables.rows(result)] == [0.5]


@pytest.mark.parametrize(
    ("mixture", "rows", "expected", "reasons"),
    [
        ({"rollout": 1, "captured": 1}, None, {"rollout": 3, "captured": 3}, {"not in": 2, "beyond": 4}),
        ({"rollout": 2, "captured": 1, "imported": 1}, None, {"rollout": 4, "captured": 2, "imported": 2}, {"beyond": 4}),
        ({"rollout": 0.7, "captured": 0.3}, None, {"rollout": 7, "captured": 3}, {"not in": 2}),
        ({"rollout": 1, "imported": 0}, None, {"rollout": 7}, {"not in": 5}),
        ({"rollout": 1, "captured": 1}, 4, {"rollout": 2, "captured": 2}, {"not in": 2, "beyond": 6}),
    ],
)
def test_a_mixture_of_sources(mixture, rows, expected, reasons, tables):
    for source, count in {"rollout": 7, "captured": 3, "imported": 2}.items():
        group(tables, source, *[1.0] * count, source=source)
    result = sample(tables, mixture=mixture, rows=rows)
    assert counts(tables, result, "source") == expected
    names = {"not in": "source not in the mixture", "beyond": "beyond the share of its source"}
    assert result.filtered == {names[reason]: count for reason, count in reasons.items()}


def test_a_source_that_has_no_rows_is_left_out_of_account(tables):
    group(tables, "a", 1.0, 1.0)
    assert sample(tables, mixture={"rollout": 1, "captured": 9}).filtered == {}


@pytest.mark.parametrize(("share", "old"), [(0.0, 0), (0.2, 1), (0.5, 4), (0.6, 6), (1.0, 7), (None, 7)])
def test_older_nights_are_a_share_of_the_batch(share, old, tables):
    group(tables, "a", *[1.0] * 4, policy_version="p2", group_id="a/p2")
    group(tables, "b", *[1.0] * 4, policy_version="p1", group_id="b/p1")
    group(tables, "c", *[1.0] * 3, policy_version="p9", group_id="c/p9")  # of a policy that is not among the versions
    result = sample(tables, versions=["p2", "p1", "p0"], replay=share)
    assert counts(tables, result) == Counter(a=4, b=min(old, 4), c=max(old - 4, 0)) - Counter()
    assert result.filtered == ({"beyond the share of older policies": 7 - old} if old < 7 else {})


def test_where_age_decides_the_versions_have_to_be_known(tables):
    group(tables, "a", 0.0, 1.0)
    for config in ({"sampling": {"replay": 0.5}}, {"max_staleness": 1}, {"pairs": {"strategy": "on-policy"}}):
        with pytest.raises(ConfigError, match="newest"):
            tables.curate("dpo", **config)


@pytest.mark.parametrize(
    "sampling",
    [
        {"mixture": {"rollout": -1, "captured": 2}},
        {"mixture": {"rollout": 0}},
        {"difficulty": {"low": 0.5, "high": 0.4}},
        {"difficulty": {}, "curriculum": [{}]},
    ],
)
def test_settings_that_mean_nothing_are_refused(sampling):
    with pytest.raises(ValueError, match=r"weights|exceeds|either"):
        Sampling(**sampling)


def test_pairs_are_sampled_too(tables):
    for item in "abc":
        group(tables, item, 0.0, 1.0, 1.0)
    result = tables.curate("dpo", sampling={"rows": 3})
    order = sorted("abc", key=lambda item: lot(f"{item}/p0"))
    assert Counter(row["item_id"] for row in tables.rows(result)) == {order[0]: 2, order[1]: 1}
    assert result.rows_in == result.details["paired"] + sum(result.filtered.values())


ROWS = st.lists(
    st.tuples(st.sampled_from("abc"), st.sampled_from(["rollout", "captured"]), st.sampled_from([0.0, 1.0])), max_size=10
)


@given(
    rows=ROWS,
    mixture=st.sampled_from([{}, {"rollout": 1, "captured": 2}]),
    balance=st.sampled_from([None, "environment"]),
    size=st.none() | st.integers(1, 6),
    replay=st.sampled_from([None, 0.4]),
    data=st.data(),
)
@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_counts_add_up_and_the_order_of_rows_does_not_matter(rows, mixture, balance, size, replay, data, tables):
    tables.trajectories, tables.scores = [], []
    for index, (item, source, reward) in enumerate(rows):
        version = "p1" if index % 2 else "p0"
        fields = {"policy_version": version, "group_id": f"{item}/{version}", "environment": f"e{item}", "source": source}
        tables.rollout(item, index, reward, **fields)
    sampling = {"mixture": mixture, "balance": balance, "rows": size, "replay": replay}
    first = sample(tables, versions=["p1", "p0"], **sampling)
    tables.trajectories = data.draw(st.permutations(tables.trajectories))
    assert sample(tables, versions=["p1", "p0"], **sampling).output.rows == first.rows_out
    assert tables.kept(sample(tables, versions=["p1", "p0"], **sampling)) == tables.kept(first)
    assert first.rows_out <= (size or 10)
    fresh = counts(tables, first, "policy_version")
    assert replay is None or fresh["p0"] <= 0.4 * first.rows_out + 1e-9
