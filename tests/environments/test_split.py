"""The split by hash."""

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clawpipe.errors import ConfigError
from clawpipe.play.environments.split import heldout, is_heldout_split


@given(st.text(), st.text(), st.floats(0, 1))
def test_it_is_the_leading_bits_of_sha256(identity, salt, fraction):
    leading = int(hashlib.sha256(f"{salt}/{identity}".encode()).hexdigest()[:16], 16)
    assert heldout(identity, fraction, salt) == (leading / 2**64 < fraction)


@pytest.mark.parametrize("fraction", [0.0, 0.2, 0.5, 1.0])
def test_it_holds_out_the_fraction(fraction):
    share = sum(heldout(f"item/{index}", fraction) for index in range(5000)) / 5000
    assert share == pytest.approx(fraction, abs=0.03)  # four standard errors


def test_a_larger_fraction_only_adds():
    names = [f"item/{index}" for index in range(500)]
    assert {name for name in names if heldout(name, 0.2)} <= {name for name in names if heldout(name, 0.3)}


def test_split_names():
    assert (is_heldout_split("heldout"), is_heldout_split("train")) == (True, False)
    with pytest.raises(ConfigError, match="heldout"):
        is_heldout_split("test")
