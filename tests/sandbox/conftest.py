"""One sandbox for tests that leave nothing behind; and what a sandbox of this machine must not reach."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest

from clawpipe.play.sandbox.base import Limits
from clawpipe.play.sandbox.bubblewrap import Bubblewrap

SMALL = Limits(seconds=5.0, output_bytes=1 << 16, memory_bytes=256 << 20, disk_bytes=8 << 20, files=500, processes=16)


@pytest.fixture(scope="module")
def shared() -> Iterator[Bubblewrap]:
    if not shutil.which("bwrap"):
        pytest.skip("no bubblewrap on this machine: apt-get install bubblewrap")
    with Bubblewrap(SMALL) as sandbox:
        yield sandbox


@pytest.fixture
def box(shared: Bubblewrap) -> Bubblewrap:
    """The shared sandbox, empty and without processes."""
    shared.end_processes()
    shared.exec("find /workspace /tmp /dev/shm -mindepth 1 -delete")
    return shared
