"""Nights on what an agent left behind, and one after a person asked to be forgotten."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

pytestmark = pytest.mark.slow

FORGETTABLE = "My locker in the north hall opens with the word periwinkle."
STORED = ("night=imported", "rollouts=null", "rounds=1", "train.optimizer_steps=2", "environment.heldout_items=50")
IMITATE = ("train.method=sft", "curation.imitate=any", "curation.near.duplicates=true", "curation.near.heldout=true")


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


def attempts() -> Iterator[dict[str, Any]]:
    """Batch rows: two attempts at each of six prompts, the first of which went well; a call and its answer are in between."""
    for number in range(6):
        for good in (True, False):
            call = json.dumps({"name": "look", "arguments": {"place": number if good else 99}})
            calls = f"<tool_call>\n{call}\n</tool_call>"
            answer = "A lake." if good else "Unknown."
            said = [f"What is at camp {number}?", calls, "<tool_response>\na lake\n</tool_response>", answer]
            turns = [{"from": who, "value": text} for who, text in zip(("human", "gpt", "tool", "gpt"), said, strict=True)]
            yield {"conversations": turns, "completed": good, "partial": False}


def ingested(clawpipe, file: Path, lines: Iterator[dict[str, Any]]) -> dict[str, Any]:
    """What was read in."""
    file.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    done = clawpipe("ingest", str(file), "--json")
    assert done.code == 0, done.stderr
    return done.json


def holding(home: Path, text: str) -> list[Path]:
    """Files below the home with the text in them, compressed or not."""
    files = [path for path in home.rglob("*") if path.is_file()]
    told = {path: json.dumps(pq.read_table(path).to_pylist()).encode() for path in files if path.suffix == ".parquet"}
    return [path for path in files if text.encode() in told.get(path, b"") + path.read_bytes()]


@pytest.mark.long
def test_the_night_after_learns_without_what_was_forgotten(new_clawpipe, tmp_path):
    clawpipe = new_clawpipe("imported")
    read = ingested(clawpipe, tmp_path / "chats.jsonl", chats())
    night = (*STORED, *IMITATE, f"trajectories=[{read['dataset']['digest']}]")
    before = clawpipe.night(*night)
    assert step(before, "curate")["filtered"] == {"near-duplicate": 1}
    assert step(before, "train")["rows_in"] == 18
    assert holding(clawpipe.home.root, FORGETTABLE)
    gone = clawpipe("forget", "--session", "s18", "--json")
    assert gone.code == 0, gone.stderr
    assert gone.json["still_held"] == []
    assert holding(clawpipe.home.root, FORGETTABLE) == []
    after = clawpipe.night(*night)
    assert step(after, "train")["rows_in"] == 17
    assert after["policy_version"] != before["policy_version"]
    assert holding(clawpipe.home.root, FORGETTABLE) == []


def test_attempts_of_another_agent_become_preferences(new_clawpipe, tmp_path):
    clawpipe = new_clawpipe("attempts")
    read = ingested(clawpipe, tmp_path / "batch.jsonl", attempts())
    given = (f"trajectories=[{read['dataset']['digest']}]", f"scores=[{read['scores']['digest']}]")
    status = clawpipe.night(*STORED, *given, "train.method=dpo")
    assert (step(status, "curate")["rows_out"], step(status, "train")["rows_in"]) == (6, 6)
    assert status["policy_version"]


def test_unjudged_chats_teach_nothing_and_the_fix_is_named(new_clawpipe, tmp_path):
    """200 chats by the recipe of docs/ingest.md ended with exit 0 and "REJECT: worse by 25 points" about an untrained base."""
    clawpipe = new_clawpipe("unjudged")
    unjudged = ({**chat(f"s{number}", "ann", f"Day {number}"), "success": None} for number in range(200))
    read = ingested(clawpipe, tmp_path / "chats.jsonl", ({key: row[key] for key in row if row[key]} for row in unjudged))
    given = (*STORED, f"trajectories=[{read['dataset']['digest']}]", "train.method=sft")
    done = clawpipe.run(*given)
    assert (done.code, done.json["error"]) == (65, "DataError"), done.stdout
    assert "200 rows were filtered and none was left for sft to train on (200 x no verifier score)" in done.json["what"]
    assert "curation.imitate to any" in done.json["fix"]
    status = clawpipe.night(*given, "curation.imitate=any")  # the setting helps
    assert step(status, "train")["rows_in"] == 200
    assert status["compared"] == (
        "sft from random on 200 stored trajectories; compared with random on 50 held-out items of the environment letters"
    )
