"""A night on what an agent left behind, and one after a person asked to be forgotten."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

pytestmark = pytest.mark.slow

FORGETTABLE = "My locker in the north hall opens with the word periwinkle."
NIGHT = (
    "night=imported",
    "rollouts=null",
    "rounds=1",
    "train.method=sft",
    "train.updates=2",
    "curation.imitate=any",
    "curation.near.duplicates=true",
    "curation.near.heldout=true",
    "environment.heldout_items=50",
    "registry.model_name=imported",
)


def chats() -> Iterator[dict[str, Any]]:
    """Sixteen sessions of two people that say different things, two that say nearly the same, and one to forget."""
    days = [f"On day {day} we walked from camp {day} to lake {day * 7} and counted {day * 13} birds." for day in range(16)]
    for number, told in enumerate(days):
        yield chat(f"s{number}", "ann" if number % 2 else "bob", told)
    twice = " ".join(f"word{number}" for number in range(60))
    yield from (chat("s16", "bob", twice), chat("s17", "bob", f"{twice} again"))
    yield chat("s18", "eve", FORGETTABLE)


def chat(session: str, user: str, told: str) -> dict[str, Any]:
    said = [{"role": "user", "content": told}, {"role": "assistant", "content": f"I noted: {told}"}]
    return {"session_id": session, "user": user, "messages": said, "success": True}


def step(status: dict[str, Any], name: str) -> dict[str, Any]:
    [found] = [entry for entry in status["steps"] if entry["name"] == f"round-1/{name}"]
    return found


def ingested(clawpipe, folder: Path) -> str:
    """The digest of what was read in."""
    file = folder / "chats.jsonl"
    file.write_text("".join(f"{json.dumps(line)}\n" for line in chats()))
    done = clawpipe("ingest", str(file), "--json")
    assert done.code == 0, done.stderr
    return done.json["dataset"]["digest"]


def holding(home: Path, text: str) -> list[Path]:
    """Files below the home with the text in them, compressed or not."""
    files = [path for path in home.rglob("*") if path.is_file()]
    told = {path: json.dumps(pq.read_table(path).to_pylist()).encode() for path in files if path.suffix == ".parquet"}
    return [path for path in files if text.encode() in told.get(path, b"") + path.read_bytes()]


def test_the_night_after_learns_without_what_was_forgotten(new_clawpipe, tmp_path):
    clawpipe = new_clawpipe("imported")
    night = (*NIGHT, f"trajectories=[{ingested(clawpipe, tmp_path)}]")
    before = clawpipe.night(*night)
    assert step(before, "curate")["set_aside"] == {"near-duplicate": 1}
    assert step(before, "train")["rows_in"] == 18
    assert holding(clawpipe.home.root, FORGETTABLE)
    gone = clawpipe("forget", "--session", "s18", "--json")
    assert gone.code == 0, gone.stderr
    assert gone.json["residue"] == []
    assert holding(clawpipe.home.root, FORGETTABLE) == []
    after = clawpipe.night(*night)
    assert step(after, "train")["rows_in"] == 17
    assert after["policy_version"] != before["policy_version"]
    assert holding(clawpipe.home.root, FORGETTABLE) == []
