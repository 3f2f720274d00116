"""Flows keep what they write private, also where clawpipe did not start their process."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from prefect import Flow

from clawpipe.core.store.home import Home
from clawpipe.errors import ClawpipeError
from flows.ingest import ingest
from flows.nightly import nightly
from flows.sweep import sweep_trial
from tests.permissions import umask


@pytest.fixture(autouse=True)
def usual_umask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


@pytest.mark.parametrize(("flow", "arguments"), [(nightly, ("no.yaml",)), (ingest, ()), (sweep_trial, ("no", 1))])
def test_a_flow_sets_the_umask_first(flow: Flow, arguments: tuple, home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    home.root.mkdir()
    (home.root / "watched.json").write_text("damaged")  # so that none of them gets far
    with pytest.raises((ClawpipeError, OSError)):
        flow.fn(*arguments)
    assert umask() == 0o077
