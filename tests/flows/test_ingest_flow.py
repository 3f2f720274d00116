"""Ingest as a flow on a real server."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from clawpipe.store.home import Home
from flows.ingest import ingest

pytestmark = pytest.mark.usefixtures("prefect_api")


def chat(question: str) -> str:
    said = [{"role": "user", "content": question}, {"role": "assistant", "content": "Yes."}]
    return json.dumps({"messages": said}) + "\n"


def test_each_run_reads_what_is_new(home: Home, tmp_path: Path):
    folder = tmp_path / "agent"
    folder.mkdir()
    (folder / "a.jsonl").write_text(chat("Is it open?") + "{\n")
    first = ingest([str(folder)])
    (folder / "b.jsonl").write_text(chat("Is it far?"))
    second = ingest([str(folder)])
    assert (first["lines"], first["accepted"], first["quarantined"]) == (2, 1, {"not JSON": 1})
    assert (second["lines"], second["accepted"], second["skipped"]) == (1, 1, 1)
    for made in (first["dataset"], second["dataset"]):
        assert made["rows"] == 1
        assert (home.store / "trajectories" / made["digest"]).is_dir()
