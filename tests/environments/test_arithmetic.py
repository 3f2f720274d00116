"""The calculator: right on arithmetic, deaf to everything else."""

from fractions import Fraction

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from clawpipe.play.environments.shop_tools import calculate, format_number

numbers = st.integers(0, 99).map(lambda value: (str(value), Fraction(value)))


def _combined(parts):
    (left, a), sign, (right, b) = parts
    assume(sign != "/" or b != 0)
    value = {"+": lambda: a + b, "-": lambda: a - b, "*": lambda: a * b, "/": lambda: a / b}[sign]()
    return f"({left} {sign} {right})", value


expressions = st.recursive(numbers, lambda inner: st.tuples(inner, st.sampled_from("+-*/"), inner).map(_combined), max_leaves=5)


@given(expressions)
def test_it_agrees_with_exact_fractions(expression):
    text, value = expression
    assume(len(text) <= 100)
    assert calculate(text) == pytest.approx(float(value), abs=1e-6)


@pytest.mark.parametrize(
    ("text", "value"), [("17 * 4", 68), ("-3+5", 2), ("2 - -2", 4), (" (1+2)*3 ", 9), ("7/2", 3.5), ("0.5 + 0.25", 0.75), ("+4", 4)]
)
def test_by_hand(text, value):
    assert calculate(text) == value


NOT_ARITHMETIC = """2 ** 9|9 // 2|9 % 2|x|abs(3)|'a' * 3|True|1, 2|1 if 1 else 2|1j|1 == 1|1 +|0x|1\n2|[1]|~1|not 1|(x := 3)|f'{1}'
|__import__('os')|().__class__|lambda: 1|1_000_000 * 'a'|\0|"""


@pytest.mark.parametrize("text", NOT_ARITHMETIC.split("|"))
def test_everything_else_is_refused(text):
    with pytest.raises(ValueError, match="not"):
        calculate(text)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("1/0", "division by zero"),
        ("1/(2-2)", "division by zero"),
        ("9" * 20, "too large"),
        ("999999999 * 999999999", "too large"),
        ("1e400", "too large"),
        ("1e400 - 1e400", "too large"),
        ("1" + "+1" * 60, "longer than 100"),
        ("(" * 60 + "1" + ")" * 60, "longer than 100"),
    ],
)
def test_bounds(text, why):
    with pytest.raises(ValueError, match=why):
        calculate(text)


@pytest.mark.parametrize("text", ["-" * 99 + "1", "(" * 49 + "1" + ")" * 49])
def test_the_deepest_there_is(text):
    assert calculate(text) in (1, -1)


@pytest.mark.parametrize(
    ("value", "text"),
    [(57, "57"), (-3, "-3"), (12.5, "12.5"), (4.0, "4"), (1 / 3, "0.333333"), (-0.0, "0"), (1e15, "1" + "0" * 15)],
)
def test_spelling(value, text):
    assert format_number(value) == text
