"""Which rows make up the batch."""

from collections import Counter
from hashlib import sha256

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from clawpipe.config.curation import Sampling
from clawpipe.errors import ConfigError


def lot(name):
    return int(sha256(name.encode()).hexdigest()[:32], 16)


def group(world, item, *rewards, **fields):
    for index, reward in enumerate(rewards):
        world.rollout(item, index, reward, **fields)


def sample(world, method="ppo", versions=(), **sampling):
    result = world.curate(method, versions=versions, sampling=sampling)
    assert result.rows_in == result.rows_out + sum(result.set_aside.values())
    return result


def counts(world, result, column="item_id"):
    of = {row["trajectory_id"]: row[column] for row in world.trajectories}
    return Counter(of[name] for name in world.kept(result))


@pytest.mark.parametrize(
    ("band", "items"),
    [
        ({"low": 0.25, "high": 0.75}, "bc"),
        ({"low": 0.5}, "cd"),
        ({"high": 0.0}, "a"),
        ({}, "abcd"),
    ],
)
def test_a_band_of_pass_rates(band, items, world):
    for item, passed in zip("abcd", [0, 1, 2, 4], strict=True):
        group(world, item, *[float(index < passed) for index in range(4)])
    world.rollout("e", 0, None)
    world.score("e-0", 1.0, turn=0)  # nobody verified it: it has no pass rate
    result = sample(world, difficulty=band)
    assert "".join(counts(world, result)) == items + "e"
    expected = {"outside the difficulty band": 4 * (4 - len(items))} if len(items) < 4 else {}
    assert result.set_aside == expected


def test_a_pass_rate_is_that_of_all_rollouts_though_only_successes_are_imitated(world):
    group(world, "a", 1.0, 0.0, 0.0, 0.0)
    group(world, "b", 1.0, 1.0, 1.0, 0.0)
    assert counts(world, sample(world, "sft", difficulty={"high": 0.5})) == {"a": 1}


def test_a_curriculum_moves_the_band_from_night_to_night(world):
    group(world, "easy", 1.0, 1.0, 1.0, 0.0)
    group(world, "hard", 1.0, 0.0, 0.0, 0.0)
    bands = [{"low": 0.5}, {"high": 0.5}]
    kept = [set(counts(world, sample(world, curriculum=bands, night=night))) for night in (1, 2, 3)]
    assert kept == [{"easy"}, {"hard"}, {"hard"}]


def kinds(world):
    for item, name in {"a": "tool-call", "b": "tool-call", "c": "chat"}.items():
        world.item(item, f"q {item}")
        world.items[-1] |= {"kind": name, "slice": f"slice {item}"}
    group(world, "a", 1.0, 1.0, 1.0)
    group(world, "b", 1.0, 1.0, 1.0, environment="bank")
    group(world, "c", 1.0, 1.0)


@pytest.mark.parametrize(
    ("balance", "cut", "of"),
    [("kind", 4, {"ab": 2, "c": 2}), ("slice", 2, {"a": 2, "b": 2, "c": 2}), ("environment", 2, {"ac": 3, "b": 3})],
)
def test_all_classes_have_as_many_rows_as_the_smallest(balance, cut, of, world):
    kinds(world)
    result = sample(world, balance=balance)
    assert result.set_aside == {f"beyond the balance of its {balance}": cut}
    kept = counts(world, result)
    assert {items: sum(kept[item] for item in items) for items in of} == of


def test_a_batch_of_limited_size_is_dealt_out_in_turn(world):
    kinds(world)
    result = sample(world, balance="kind", rows=7)  # two of chat are all there are
    kept = counts(world, result)
    assert (kept["a"] + kept["b"], kept["c"]) == (5, 2)
    assert result.set_aside == {"beyond the size of the batch": 1}


def test_a_draw_takes_whole_groups_as_far_as_it_can(world):
    for item in "abcd":
        group(world, item, 0.0, 1.0, 0.0)
    kept = counts(world, sample(world, "grpo", rows=7))
    order = sorted("abcd", key=lambda item: lot(f"{item}/p0"))
    assert kept == {order[0]: 3, order[1]: 3, order[2]: 1}


def test_what_stays_of_a_group_keeps_its_advantage(world):
    group(world, "a", 0.0, 1.0, 0.0, 1.0)
    result = world.curate("grpo", advantage="none", sampling={"rows": 1})
    assert [abs(row["advantages"][3]) for row in world.rows(result)] == [0.5]


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
def test_a_mixture_of_sources(mixture, rows, expected, reasons, world):
    for source, count in {"rollout": 7, "captured": 3, "imported": 2}.items():
        group(world, source, *[1.0] * count, source=source)
    result = sample(world, mixture=mixture, rows=rows)
    assert counts(world, result, "source") == expected
    names = {"not in": "source not in the mixture", "beyond": "beyond the share of its source"}
    assert result.set_aside == {names[reason]: count for reason, count in reasons.items()}


def test_a_source_that_has_no_rows_is_left_out_of_account(world):
    group(world, "a", 1.0, 1.0)
    assert sample(world, mixture={"rollout": 1, "captured": 9}).set_aside == {}


@pytest.mark.parametrize(("share", "old"), [(0.0, 0), (0.2, 1), (0.5, 4), (0.6, 6), (1.0, 7), (None, 7)])
def test_older_nights_are_a_share_of_the_batch(share, old, world):
    group(world, "a", *[1.0] * 4, policy_version="p2", group_id="a/p2")
    group(world, "b", *[1.0] * 4, policy_version="p1", group_id="b/p1")
    group(world, "c", *[1.0] * 3, policy_version="p9", group_id="c/p9")  # of a policy that is not among the versions
    result = sample(world, versions=["p2", "p1", "p0"], replay=share)
    assert counts(world, result) == Counter(a=4, b=min(old, 4), c=max(old - 4, 0)) - Counter()
    assert result.set_aside == ({"beyond the share of older policies": 7 - old} if old < 7 else {})


def test_where_age_decides_the_versions_have_to_be_known(world):
    group(world, "a", 0.0, 1.0)
    for config in ({"sampling": {"replay": 0.5}}, {"max_staleness": 1}, {"pairs": {"strategy": "on-policy"}}):
        with pytest.raises(ConfigError, match="newest"):
            world.curate("dpo", **config)


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


def test_pairs_are_sampled_too(world):
    for item in "abc":
        group(world, item, 0.0, 1.0, 1.0)
    result = world.curate("dpo", sampling={"rows": 3})
    order = sorted("abc", key=lambda item: lot(f"{item}/p0"))
    assert Counter(row["item_id"] for row in world.rows(result)) == {order[0]: 2, order[1]: 1}
    assert result.rows_in == result.details["paired"] + sum(result.set_aside.values())


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
@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_counts_add_up_and_the_order_of_rows_does_not_matter(rows, mixture, balance, size, replay, data, world):
    world.trajectories, world.scores = [], []
    for index, (item, source, reward) in enumerate(rows):
        version = "p1" if index % 2 else "p0"
        fields = {"policy_version": version, "group_id": f"{item}/{version}", "environment": f"e{item}", "source": source}
        world.rollout(item, index, reward, **fields)
    sampling = {"mixture": mixture, "balance": balance, "rows": size, "replay": replay}
    first = sample(world, versions=["p1", "p0"], **sampling)
    world.trajectories = data.draw(st.permutations(world.trajectories))
    assert sample(world, versions=["p1", "p0"], **sampling).output.rows == first.rows_out
    assert world.kept(sample(world, versions=["p1", "p0"], **sampling)) == world.kept(first)
    assert first.rows_out <= (size or 10)
    fresh = counts(world, first, "policy_version")
    assert replay is None or fresh["p0"] <= 0.4 * first.rows_out + 1e-9
