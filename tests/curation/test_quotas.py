"""What a quota cuts, against plain Python."""

from collections import Counter, defaultdict
from hashlib import sha256

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st


def lot(name):
    return int(sha256(name.encode()).hexdigest()[:32], 16)


def fill(tables, rows):
    """`rows` of (session, user, item, source); one rollout each."""
    tables.trajectories, tables.scores = [], []
    for index, (session, user, item, source) in enumerate(rows):
        tables.rollout(item, index, 1.0, session_id=session, user_id=user, source=source)


@pytest.mark.parametrize(
    ("quotas", "reason", "cut"),
    [
        ({"per_session": 2}, "beyond the quota of its session", 2),
        ({"per_user": 3}, "beyond the quota of its user", 3),
        ({"per_item": 4}, "beyond the quota of its item", 2),
        ({"per_source": 5}, "beyond the quota of its source", 1),
        ({"captured": 1}, "beyond the ceiling on captured", 1),
        ({"captured": 0}, "beyond the ceiling on captured", 2),
        ({"session_share": 0.25}, "beyond the share of its session", 4),  # one of four each, beside two that are nobody's
        ({}, None, 0),
    ],
)
@pytest.mark.parametrize("method", ["ppo", "sft"])
def test_a_quota_cuts_what_is_beyond_it(quotas, reason, cut, method, tables):
    mine = [("s1", "u", "a", "rollout")] * 4 + [("s2", "u", "a", "captured")] * 2
    fill(tables, mine + [(None, None, "b", "rollout")] * 2)
    result = tables.curate(method, quotas=quotas)
    assert result.filtered == ({reason: cut} if cut else {})
    assert result.rows_out == 8 - cut


def test_nobodys_rows_fall_under_no_quota_of_a_session_or_user(tables):
    fill(tables, [(None, None, "a", "rollout")] * 5)
    assert tables.curate("ppo", quotas={"per_session": 1, "per_user": 1, "session_share": 0.1}).filtered == {}


def test_which_rows_stay_is_drawn_by_the_digest_of_their_ids(tables):
    fill(tables, [("s", "u", "a", "rollout")] * 9)
    names = [f"a-{index}" for index in range(9)]
    assert tables.kept(tables.curate("ppo", quotas={"per_session": 4})) == sorted(sorted(names, key=lot)[:4])


def test_no_session_is_more_than_its_share_of_what_is_trained_on(tables):
    """Groups of one, that leave after the quotas, do not count in favour of the session that stays."""
    for index in range(6):
        tables.rollout("a", index, index % 2, session_id="s")
        tables.rollout(f"alone{index}", 0, 1.0, session_id=f"t{index}")
    for index in range(2):
        tables.rollout("b", index, float(index))
    result = tables.curate("grpo", quotas={"session_share": 0.5})
    assert Counter(row["item_id"] for row in tables.rows(result)) == {"a": 2, "b": 2}
    assert result.filtered == {"group of one": 6, "beyond the share of its session": 4}


def test_pairs_are_of_the_session_of_their_chosen_side(tables):
    for item, session in (("a", "s"), ("b", None)):
        for index in range(4):
            tables.rollout(item, index, float(index % 2), session_id=session)
    result = tables.curate("dpo", quotas={"session_share": 0.5}, pairs={"per_group": 4})
    assert result.rows_out == 8
    result = tables.curate("dpo", quotas={"session_share": 0.2}, pairs={"per_group": 4})
    assert Counter(row["item_id"] for row in tables.rows(result)) == {"a": 1, "b": 4}


ROWS = st.lists(
    st.tuples(
        st.sampled_from([None, "s1", "s2"]),
        st.sampled_from([None, "u1"]),
        st.sampled_from("ab"),
        st.sampled_from(["rollout", "captured"]),
    ),
    max_size=12,
)
LIMIT = st.none() | st.integers(1, 4)


@given(rows=ROWS, limits=st.tuples(LIMIT, LIMIT, LIMIT, LIMIT, LIMIT), data=st.data())
@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_quotas_match_plain_python_in_any_order_of_rows(rows, limits, data, tables):
    fill(tables, rows)
    tables.trajectories = data.draw(st.permutations(tables.trajectories))
    names = ["per_session", "per_user", "per_item", "per_source", "captured"]
    result = tables.curate("ppo", quotas=dict(zip(names, limits, strict=True)))
    left = sorted(tables.trajectories, key=lambda row: lot(row["trajectory_id"]))
    for column, limit in zip(["session_id", "user_id", "item_id", "source", "captured"], limits, strict=True):
        left = within(left, column, limit)
    assert set(tables.kept(result)) == {row["trajectory_id"] for row in left}
    assert result.rows_in == len(rows) == result.rows_out + sum(result.filtered.values())


def within(rows, column, limit):
    """The first `limit` rows of each value of a column; "captured" is a column that only captured rows have."""
    if limit is None:
        return rows
    seen, left = defaultdict(int), []
    for row in rows:
        value = row.get(column) if column != "captured" else ("captured" if row["source"] == "captured" else None)
        seen[value] += 1
        if value is None or seen[value] <= limit:
            left.append(row)
    return left


def test_a_users_hint_teaches_from_few_rows_of_that_user_alone(tables):
    """Of two users one is hinted, in each of six conversations: the other's rows get no hint, and the first decides no night."""
    for index, user in enumerate(["mallory"] * 6 + ["ann"] * 3):
        tables.rollout(f"q{index}", 0, None, trajectory_id=f"{user}-{index}", user_id=user, source="captured")
        if user == "mallory":
            tables.score(f"{user}-{index}", 0.0, turn=0, origin="judge", scorer="prm", hints=["Praise Acme."])
    result = tables.curate("opd", quotas={"per_user": 2})
    assert [name.partition("-")[0] for name in tables.kept(result)] == ["mallory"] * 2
    assert result.filtered == {"beyond the quota of its user": 5, "no hint": 2}
