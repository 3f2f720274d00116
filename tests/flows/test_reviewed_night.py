"""Nights that wait for people: what was approved teaches, what was edited teaches in the new words, and the rest does not."""

from __future__ import annotations

import json

import pytest

from tests.flows.test_conversation_night import CONVERSATIONS, rows_of

pytestmark = [pytest.mark.slow, pytest.mark.long, pytest.mark.trains]

APPROVED = "curation.approved_only=true"


def chats():
    """Sessions that nobody has scored."""
    return [
        {
            "session_id": f"s{number}",
            "messages": [
                {"role": "user", "content": f"What is {number} and {number + 3}?"},
                {"role": "assistant", "content": f"It is {2 * number + 3}."},
            ],
        }
        for number in range(16)
    ]


def waiting(clawpipe, *settings):
    """The rows of the queue by session, and its counts."""
    found = clawpipe("review", "list", *clawpipe.options(*settings), "--limit", "500").json
    return {row["session"] or row["row_id"]: row for row in found["rows"]}, found


def decide(clawpipe, verb, rows, *words):
    done = clawpipe("review", verb, *(row["row_id"] for row in rows), "--by", "ann", *words)
    assert done.code == 0, done.stderr


def steps_of(status):
    return {step["name"]: step for step in status["steps"]}


def test_approved_and_edited_conversations_alone_teach(new_clawpipe, tmp_path):
    clawpipe = new_clawpipe("reviewed")
    (tmp_path / "chats.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in chats()))
    clawpipe("ingest", str(tmp_path / "chats.jsonl"))
    night = (*CONVERSATIONS, "trajectories=[new]", "scores=[new]", "train.method=sft", "train.optimizer_steps=1", APPROVED)
    early = clawpipe.run(*night)
    assert (early.code, early.json["what"].partition(",")[0]) == (75, "16 new rows wait for a person's approval")
    rows, _ = waiting(clawpipe, *night)
    part = [rows[f"s{number}"] for number in range(16)]
    decide(clawpipe, "approve", part[:7])
    decide(clawpipe, "reject", part[7:11], "--reason", "no")
    for row in part[11:15]:
        decide(clawpipe, "edit", [row], "--text", "A person's own answer.")
    status = clawpipe.night(*night)
    steps, names = steps_of(status), {row["row_id"]: number for number, row in enumerate(part)}
    samples = rows_of(clawpipe.home.store, steps["round-1/curate"]["artifacts"]["output"])
    origin = {row["trajectory_id"]: names[row["trajectory_id"].partition(":")[0]] for row in samples}
    assert {number for name, number in origin.items() if ":edited:" in name} <= {11, 12, 13, 14}
    assert {number for name, number in origin.items() if ":edited:" not in name} <= set(range(7))
    assert any(":edited:" in name for name in origin)
    filtered = steps["round-1/curate"]["filtered"]
    assert filtered["edited by a person"] == sum(":edited:" in name for name in origin)
    assert set(filtered) == {"edited by a person", "rejected by a person"}
    assert steps["draw_conversations"]["rows_out"] <= 7
    assert [(one["verdict"], one["by"], one["rows"]) for one in status["reviews"]] == [
        ("approved", "ann", 7),
        ("edited", "ann", 4),
        ("rejected", "ann", 4),
    ]
    assert any("1 new rows wait" in text for text in status["warnings"])
    assert "Reviewed by people" in (clawpipe.home.runs / status["night"] / "report.html").read_text()
    if status["model"]:
        traced = clawpipe("trace", f"models:/{status['model']['name']}/{status['model']['version']}", "--json").json["reviews"]
        assert traced.keys() == origin.keys()
        assert {one["by"] for one in traced.values()} == {"ann"}
        assert {one["verdict"] for one in traced.values()} == {"approved", "written"}
    left, counts = waiting(clawpipe, *night)
    assert (list(left), counts["waiting"]) == (["s15"], 1)
    gone = clawpipe("forget", "--session", "s12", "--json").json
    assert (gone["reviews"], gone["still_held"]) == (1, [])


@pytest.mark.parametrize("method", ["grpo", "dpo"])
def test_rollouts_wait_and_the_same_command_goes_on(new_clawpipe, method):
    clawpipe = new_clawpipe(f"reviewed-{method}")
    night = ("rounds=1", "rollouts.items=8", f"train.method={method}", "train.optimizer_steps=1", APPROVED)
    early = clawpipe.run(*night)
    assert (early.code, "waits for approval" in early.json["what"]) == (65, True)
    rows, counts = waiting(clawpipe, *night)
    assert counts["waiting"] == len(rows) > 0
    assert {score["origin"] for row in rows.values() for score in row["scores"]} == {"verifier"}
    edited, rejected, *approved = rows.values()
    decide(clawpipe, "approve", approved)
    decide(clawpipe, "reject", [rejected])
    decide(clawpipe, "edit", [edited], "--text", "aa")
    steps = steps_of(clawpipe.night(*night))
    assert steps["round-1/generate_rollouts"]["state"] == "cached"
    filtered = steps["round-1/curate"]["filtered"]
    assert filtered["rejected by a person"] == 1
    if method == "grpo":
        assert filtered["edited by a person, whose text has no log-probs"] == 1
        assert "round-1/edit" not in steps
    else:
        assert filtered["edited by a person"] == 1
        pairs = rows_of(clawpipe.home.store, steps["round-1/add_stored_pairs"]["artifacts"]["output"])
        [pair] = [one for one in pairs if ":edited:" in one["chosen_id"]]
        assert (pair["chosen"][0]["content"], pair["rejected_id"]) == ("aa", edited["row_id"])
