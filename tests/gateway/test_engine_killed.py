"""An engine that is killed behind `clawpipe serve --capture` is started again, and nobody has to notice but by waiting."""

import os
import signal
import time
from pathlib import Path

import openai
import pytest

from clawpipe.core.store.home import Home
from tests.gateway.conftest import serving

SECONDS = 240.0


def engine_of(home: Home) -> list[int]:
    """The processes that hold the model: those whose words are those of `serve` behind a gateway."""
    return [int(path.parent.name) for path in Path("/proc").glob("[0-9]*/environ") if _is_engine(path.parent, home)]


def _is_engine(process: Path, home: Home) -> bool:
    try:
        environ, words = (process / "environ").read_bytes(), (process / "cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
    mine = b"CLAWPIPE_BEHIND_GATEWAY=1" in environ and f"CLAWPIPE_HOME={home.root}".encode() in environ
    return mine and b"serve" in words and not any(word.endswith(b"processes.py") for word in words)


@pytest.mark.slow
@pytest.mark.long
def test_a_killed_engine_is_back_by_itself_and_says_so(tmp_path):
    home = Home(tmp_path / "home")
    words = ["serve", "models:/agent@champion", "--base", "random", "--capture"]
    with serving(home, *words) as running:
        assert running.ask(max_tokens=2).choices
        [engine] = engine_of(home)
        os.kill(engine, signal.SIGKILL)
        deadline = time.monotonic() + SECONDS
        while not answered(running):
            assert time.monotonic() < deadline
        assert engine_of(home) != [engine]
        assert "the engine was killed (signal 9)" in (home.root / "gateway.log").read_text()


def answered(running) -> bool:
    try:
        return bool(running.ask(max_tokens=2).choices)
    except openai.InternalServerError:  # 503; anything else is a failure of the test
        return False
