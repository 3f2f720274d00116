from hypothesis import given
from hypothesis import strategies as st

from clawpipe.data.ingest.intake.digests import DigestCounts, DigestSet

DIGESTS = st.lists(st.integers(-(2**63), 2**64 - 1) | st.integers(2, 9).map(lambda low: (low << 40) + 1023), max_size=60)


def same(digest):
    return digest % 2**64 or 1


@given(DIGESTS, DIGESTS)
def test_a_set_of_digests_holds_what_pythons_set_holds(added, asked):
    digests, known = DigestSet(), set()
    for digest in added:
        assert digests.add(digest) == (same(digest) not in known)
        known.add(same(digest))
    assert [digest in digests for digest in [*added, *asked]] == [same(digest) in known for digest in [*added, *asked]]


def test_a_set_of_digests_grows():
    digests, numbers = DigestSet(), [hash(f"row {number}") for number in range(5000)]
    assert all(map(digests.add, numbers))
    assert not any(map(digests.add, numbers))
    assert hash("row 5000") not in digests


@given(st.lists(st.integers(2, 5)))
def test_digests_are_counted(numbers):
    counts = DigestCounts()
    assert [counts.count(number) for number in numbers] == [numbers[:place].count(number) for place, number in enumerate(numbers)]
