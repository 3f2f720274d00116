import pytest
from hypothesis import given
from hypothesis import strategies as st

from clawpipe.data.curation.statements import running_mean


def test_a_value_is_compared_with_those_before_it():
    # 0; 0.5 * 0 + 0.5 * 1; 0.5 * 0.5 + 0.5 * -1; 0.5 * -0.25 + 0.5 * 1
    assert running_mean([1.0, -1.0, 1.0, 1.0], 0.5) == [0.0, 0.5, -0.25, 0.375]


@given(values=st.lists(st.floats(-1, 1)), decay=st.floats(0.01, 0.99))
def test_it_is_the_sum_of_decayed_values(values, decay):
    for index, mean in enumerate(running_mean(values, decay)):
        assert mean == pytest.approx(sum((1 - decay) * decay ** (index - 1 - j) * values[j] for j in range(index)), abs=1e-9)
