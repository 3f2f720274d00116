"""A page as text: from Playwright's aria snapshots, expectations written by hand."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from clawpipe.play.environments.browser.outline import Outline

FORM = """
- generic [ref=e2]:
  - generic [ref=e3]: Select YM2l8 and click Submit.
  - generic [ref=e4]:
    - generic [ref=e6]:
      - checkbox "YM2l8" [checked] [ref=e7]
      - text: YM2l8
    - generic [ref=e8] [cursor=pointer]: more
    - generic [ref=e9] [cursor=pointer]
    - textbox "Your \\"name\\"" [active] [ref=e10]: Ada
    - 'heading "Note: it''s late" [level=2] [ref=e11]'
    - link "Home" [ref=f1e12]:
      - /url: /home
    - button "OK" [disabled] [ref=e18]
"""


def test_each_line_is_an_element_with_its_number():
    outline = Outline.of(FORM, 2000, "Select  YM2l8 and click Submit.")
    assert outline.text.splitlines() == [
        '1 checkbox "YM2l8" checked',
        "2 clickable: more",
        "3 clickable",
        '4 textbox "Your \\"name\\"" active: Ada',
        '5 heading "Note: it\'s late"',
        '6 link "Home"',
        '7 button "OK" disabled',
    ]
    assert outline.references == ("e7", "e8", "e9", "e10", "e11", "f1e12", "e18")


def test_a_long_page_is_cut_between_lines_and_says_so():
    text = Outline.of("\n".join(f'- button "Number {number}" [ref=e{number}]' for number in range(50)), 60).text
    assert text.splitlines() == ['1 button "Number 0"', '2 button "Number 1"', '3 button "Number 2"', "(47 more lines)"]


def test_a_page_without_anything_says_so():
    assert Outline.of("- generic [ref=e1]:\n  - generic [ref=e2]", 100) == Outline("(an empty page)", ())


@given(st.text(), st.integers(1, 200))
def test_any_text_is_read_and_bounded(snapshot, characters):
    text = Outline.of(snapshot, characters).text
    assert len(text) <= characters + len("\n(99999 more lines)")
