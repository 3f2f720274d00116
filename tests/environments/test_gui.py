"""Work on web pages in a real Chromium: MiniWoB's, and apps of the user's own."""

from __future__ import annotations

import shutil
from importlib.metadata import PackageNotFoundError, distribution

import pytest

from clawpipe.environments.discovery import load_environment
from tests.environments.gold_gui import GOLD, play

try:
    PAGES = distribution("miniwob")
except PackageNotFoundError:
    PAGES = None
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("chromium") is None, reason="no chromium: apt-get install chromium"),
    pytest.mark.skipif(PAGES is None, reason="no pages: pip install --no-deps miniwob"),
]
ALL_TRAIN = 1e-9  # share of the held-out items


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    return tmp_path_factory.mktemp("gui")


@pytest.fixture(scope="module")
def miniwob(kept):
    """An environment of all pages that the scripted agents solve."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CLAWPIPE_HOME", str(kept))
        environment = load_environment("gui", {"pages": list(GOLD), "share": ALL_TRAIN, "seconds": 60.0})
    yield environment
    environment.browser.close()


@pytest.fixture(scope="module")
def items(miniwob):
    return {item.slice: item for item in miniwob.items("train", len(GOLD), 0)}


@pytest.mark.parametrize("page", GOLD)
def test_a_scripted_agent_solves_the_page(miniwob, items, page):
    ending = play(miniwob, items[page], GOLD[page])
    outcome = miniwob.verify(items[page], [], ending.verdict)
    assert (outcome.value, outcome.success, ending.error) == (1.0, True, "")


def test_who_does_nothing_gets_nothing(miniwob, items):
    for item in items.values():
        ending = play(miniwob, item, lambda instruction, see: iter(()))
        assert miniwob.verify(item, [], ending.verdict).value == 0
