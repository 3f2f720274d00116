"""A night in a real offline W&B run, whose files hold what would be uploaded."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from pathlib import Path

import openai  # noqa: F401  # beside such libraries W&B would advertise itself
import pytest

from clawpipe.record.tracking.wandb_sink import WandbSink, run_id

wandb = pytest.importorskip("wandb")

from wandb.proto.wandb_internal_pb2 import Record  # noqa: E402

ONE, TWO, THREE = ({"step": step, "loss": 1.0 / step, "lp": -1.0} for step in (1, 2, 3))
NIGHT = "2030-01-02-abc"
KEY = "0123456789abcdef0123456789abcdef01234567"
_BLOCK, _FILE_HEADER, _HEADER = 32768, 7, struct.Struct("<IHB")
_FULL, _FIRST, _MIDDLE, _LAST = 1, 2, 3, 4


def records(path: Path) -> Iterator[Record]:
    """The records of a .wandb file: LevelDB's log format (blocks of 32 KiB, chunks of crc, length, type) of protocol buffers."""
    data, at, whole = path.read_bytes(), _FILE_HEADER, b""
    assert data.startswith(b":W&B")
    while at + _HEADER.size <= len(data):
        if _BLOCK - at % _BLOCK < _HEADER.size:
            at += _BLOCK - at % _BLOCK
            continue
        _, length, kind = _HEADER.unpack_from(data, at)
        chunk = data[at + _HEADER.size : at + _HEADER.size + length]
        at += _HEADER.size + length
        whole = chunk if kind in (_FULL, _FIRST) else whole + chunk
        if kind in (_FULL, _LAST):
            yield Record.FromString(whole)


def files(run_dir: Path) -> list[Path]:
    return sorted((run_dir / "wandb").glob("offline-run-*/run-*.wandb"))


def history(run_dir: Path) -> list[dict]:
    """Return the rows of all files, as one upload after the other would give them."""
    rows = [record.history for path in files(run_dir) for record in records(path) if record.WhichOneof("record_type") == "history"]
    return [{(item.key or "/".join(item.nested_key)): json.loads(item.value_json) for item in row.item} for row in rows]


def summary(run_dir: Path) -> dict:
    updates = [item for path in files(run_dir) for record in records(path) for item in record.summary.update]
    return {(item.key or "/".join(item.nested_key)): json.loads(item.value_json) for item in updates}


@pytest.fixture(autouse=True)
def offline(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_API_KEY", KEY)
    monkeypatch.setenv("HOME", str(tmp_path / "user"))
    for name in ("WANDB_CACHE_DIR", "WANDB_CONFIG_DIR", "WANDB_DATA_DIR"):  # set by the sink: to be undone
        monkeypatch.setenv(name, str(tmp_path / "home" / name))
    monkeypatch.delenv("WANDB_DISABLE_WEAVE", raising=False)
    yield
    wandb.teardown()  # it reads its settings once a process


@pytest.fixture
def new_sink(run_dir):
    return lambda: WandbSink("team/retraining", NIGHT, {"train": {"learning_rate": 0.1, "method": "grpo"}}, run_dir)


def test_a_night_is_one_run_however_often_it_was_killed(tell, new_sink, run_dir, capfd):
    first = tell(new_sink())
    first.updated("round-1", ONE, TWO)
    first.tracker.close(failed=True)
    night = tell(new_sink())
    night.updated("round-1", TWO, THREE)
    night.trained("round-1", [ONE, TWO, THREE])
    night.trained("round-2", [ONE])
    verdict = night.judged()
    night.tracker.close(failed=False)
    wandb.teardown()  # as at the end of a process: its files are whole

    assert night.warnings == first.warnings == []
    assert len(files(run_dir)) == 2
    assert {path.name for path in files(run_dir)} == {f"run-{run_id(NIGHT)}.wandb"}
    rows = history(run_dir)
    assert [row["_step"] for row in rows] == [row["step"] for row in rows] == [1, 2, 3, 4]
    assert [row["loss/total"] for row in rows] == [1.0, 0.5, pytest.approx(1 / 3), 1.0]
    assert [row["round"] for row in rows] == [1, 1, 1, 2]
    assert summary(run_dir)["heldout/candidate"] == verdict.models["candidate"].success
    assert summary(run_dir)["verdict"] == "PROMOTE"
    [run, *_] = [record.run for record in records(files(run_dir)[0]) if record.WhichOneof("record_type") == "run"]
    assert (run.entity, run.project, run.display_name, run.run_id) == ("team", "retraining", f"{NIGHT} grpo", run_id(NIGHT))
    assert capfd.readouterr() == ("", "")


def test_probes_have_an_axis_of_their_own(tell, new_sink, run_dir, capfd):
    night = tell(new_sink())
    night.trained("round-1", [ONE, TWO, THREE])
    night.probed("round-1", {"step": 1, "success": 0.25, "items": 4}, {"step": 3, "success": 0.5, "items": 4})
    night.judged()
    night.tracker.close(failed=False)
    wandb.teardown()
    rows = [row for row in history(run_dir) if "probe/step" in row]
    assert [(row["probe/step"], row["probe/success"]) for row in rows] == [(1, 0.25), (3, 0.5)]
    assert [row["step"] for row in history(run_dir) if "step" in row] == [1, 2, 3]
    assert capfd.readouterr() == ("", "")


def test_the_key_is_in_no_file_and_nothing_lies_elsewhere(tell, new_sink, run_dir, tmp_path):
    night = tell(new_sink())
    night.trained("round-1", [ONE])
    night.tracker.close(failed=False)
    written = [path for path in run_dir.rglob("*") if path.is_file()]
    assert files(run_dir)
    assert all(KEY.encode() not in path.read_bytes() for path in written)
    assert not (tmp_path / "user").exists()


def test_without_a_key_the_night_goes_on(tell, new_sink, memory, monkeypatch):
    monkeypatch.setenv("WANDB_MODE", "online")
    monkeypatch.delenv("WANDB_API_KEY")
    night = tell(new_sink(), memory)
    night.trained("round-1", [ONE, TWO])
    assert len(memory.curve) == 2
    [warning] = night.warnings
    assert "W&B has no key" in warning
    assert "export WANDB_API_KEY, or WANDB_MODE=offline" in warning


def test_a_server_that_is_away_does_not_hold_the_night_up(tell, new_sink, monkeypatch):
    monkeypatch.setenv("WANDB_MODE", "online")
    monkeypatch.setenv("WANDB_BASE_URL", "http://127.0.0.1:9")  # the discard port: nobody listens
    monkeypatch.setattr("clawpipe.record.tracking.wandb_sink._INIT_SECONDS", 1.0)
    night = tell(new_sink())
    night.trained("round-1", [ONE])
    [warning] = night.warnings
    assert "WANDB_MODE=offline" in warning
    assert KEY not in warning
