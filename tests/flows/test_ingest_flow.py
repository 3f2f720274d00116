"""Ingest as a flow on a real server."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from clawpipe.core.store.home import Home
from clawpipe.data.ingest.intake.options import Options
from clawpipe.data.ingest.watched import watch
from flows.ingest import READY, ingest, tell_if_ready

pytestmark = pytest.mark.usefixtures("prefect_api")


def chat(question: str) -> str:
    said = [{"role": "user", "content": question}, {"role": "assistant", "content": "Yes."}]
    return json.dumps({"messages": said}) + "\n"


def test_each_run_reads_what_is_new(home: Home, tmp_path: Path):
    folder = tmp_path / "agent"
    folder.mkdir()
    (folder / "a.jsonl").write_text(chat("Is it open?") + "{\n")
    [first] = ingest([str(folder)])
    (folder / "b.jsonl").write_text(chat("Is it far?"))
    [second] = ingest([str(folder)])
    assert (first["lines"], first["accepted"], first["quarantined"]) == (2, 1, {"not JSON": 1})
    assert (second["lines"], second["accepted"], second["skipped"]) == (1, 1, 1)
    for made in (first["dataset"], second["dataset"]):
        assert made["rows"] == 1
        assert (home.store / "trajectories" / made["digest"]).is_dir()


def test_without_paths_it_reads_the_watched_files(home: Home, tmp_path: Path):
    known, other = tmp_path / "known", tmp_path / "other"
    for folder in (known, other, tmp_path / "empty"):
        folder.mkdir()
    (known / "a.jsonl").write_text(chat("Is it open?"))
    (other / "b.jsonl").write_text(json.dumps({"said": json.loads(chat("Is it far?"))["messages"]}) + "\n")
    watch(home, [str(known)], Options())
    watch(home, [str(tmp_path / "empty")], Options(user="nobody"))
    watch(home, [str(other)], Options(map=("messages=said",)))
    assert [report["accepted"] for report in ingest()] == [1, 1]
    assert [report["accepted"] for report in ingest()] == [0, 0]


def test_data_are_ready_when_enough_of_them_wait(home: Home, tmp_path: Path):
    file = tmp_path / "a.jsonl"
    file.write_text(chat("Is it open?") + chat("Is it far?"))
    ingest([str(file)])
    assert tell_if_ready(home, "agent", 3) is None
    event = tell_if_ready(home, "agent", 2)
    assert event is not None
    assert (event.event, event.resource.id, event.payload["waiting"]) == (READY, "clawpipe.model.agent", 2)
    again = tell_if_ready(home, "agent", 1)
    assert again is not None
    assert again.payload["night"] == event.payload["night"]  # so that a night that was killed goes on
