"""The largest number of rows a session, against trying every number."""

from collections import Counter
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clawpipe.data.curation.statements import largest_cap


def cap_of(sizes, free, share):
    counted = sorted(Counter(sizes).items())
    return largest_cap([size for size, _ in counted], [count for _, count in counted], free, share)


@pytest.mark.parametrize(
    ("sizes", "free", "share", "expected"),
    [
        ([90], 10, 0.5, 10),  # 10 of 20
        ([90], 0, 0.5, 0),  # one session cannot be half of what is all its own
        ([90, 10], 0, 0.5, 10),  # 10 of 20 each
        ([90, 10], 0, 0.6, 15),  # 15 of 25
        ([5, 5, 5, 5], 0, 0.25, 5),
        ([5, 5, 5], 0, 0.25, 0),
        ([1] * 49, 0, 1 / 49, 1),  # 49 * (1 / 49) is a little less than 1
        ([7, 3], 0, 1.0, 7),
        ([], 5, 0.1, 0),
    ],
)
def test_the_cap_by_hand(sizes, free, share, expected):
    assert cap_of(sizes, free, share) == expected


@given(st.lists(st.integers(1, 30), max_size=8), st.integers(0, 40), st.integers(1, 20))
def test_the_cap_is_the_largest_that_will_do(sizes, free, percent):
    share = Fraction(percent, 20)
    will_do = [c for c in range(1, max(sizes, default=0) + 1) if c <= share * (free + sum(min(size, c) for size in sizes))]
    assert cap_of(sizes, free, float(share)) == max(will_do, default=0)
