"""A gateway of a home that machines share hears what another of them has forgotten."""

from __future__ import annotations

import asyncio
import threading

import pytest

from clawpipe.core.store.home import Home
from clawpipe.core.store.machines import VARIABLE
from clawpipe.data.capture.records import Done
from clawpipe.data.capture.segments import read_segment, segments, segments_dir
from clawpipe.data.forgotten.tombstones import Tombstone, read_tombstones, write_tombstones
from clawpipe.errors import BusyError, ConfigError
from clawpipe.serve.gateway import recorder as module
from clawpipe.serve.gateway.recorder import FORGOTTEN, Recorder


def forget(home: Home, session: str) -> None:
    stones = read_tombstones(home)
    digest = stones.digest("session", session)
    stone = Tombstone(kind="session", digest=digest, date="2026-11-23", trajectories=0, replaced={}, models=())
    write_tombstones(home, stones.with_stone(stone))


async def captured(home: Home, other: Home) -> list[str]:
    """Write records of two sessions, of which another machine forgets one meanwhile, until the gateway knows."""
    recorder = Recorder(home, segments_dir(home))
    try:
        assert await recorder.write(Done(time=0.0, key="k", session="s-1")) is None
        forget(other, "s-1")
        while await recorder.write(Done(time=1.0, key="k", session="s-1")) != FORGOTTEN:
            pass
        assert await recorder.write(Done(time=2.0, key="k", session="s-2")) is None
    finally:
        await recorder.close()
    return [
        one.record.session for path in segments(segments_dir(home)) for one in read_segment(path) if isinstance(one.record, Done)
    ]


def test_it_captures_no_more_of_what_is_forgotten(tmp_path, monkeypatch):
    monkeypatch.setenv(VARIABLE, f"file://{tmp_path}/shared")
    monkeypatch.setattr(module, "_ASK_SECONDS", 0.0)
    sessions = asyncio.run(captured(Home(tmp_path / "one"), Home(tmp_path / "two")))
    assert sessions[-1] == "s-2"
    assert sessions[0] == "s-1"


@pytest.mark.parametrize("refused", [BusyError("no answer"), ConfigError("no bucket"), OSError(28, "no space left")])
def test_a_storage_that_refuses_stops_no_capture(refused, tmp_path, monkeypatch):
    home = Home(tmp_path / "one")
    monkeypatch.setenv(VARIABLE, f"file://{tmp_path}/shared")
    forget(home, "s-1")
    monkeypatch.setattr(module, "_ASK_SECONDS", 0.0)
    asked = threading.Event()

    def refuse(_: Home) -> None:
        asked.set()
        raise refused

    monkeypatch.setattr(module, "read_tombstones", refuse)

    async def write() -> list[str | None]:
        recorder = Recorder(home, segments_dir(home))
        try:
            await asyncio.to_thread(asked.wait)
            return [await recorder.write(Done(time=0.0, key="k", session=name)) for name in ("s-1", "s-2")]
        finally:
            await recorder.close()

    assert asyncio.run(write()) == [FORGOTTEN, None]
