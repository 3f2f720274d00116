"""A night whose verdict is about conversations held out from what an agent left behind, and about no environment."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

pytestmark = pytest.mark.slow

CONVERSATIONS = ("environment.name=conversations", "rollouts=null", "rounds=1", "evaluation.heldout_share=0.5")
IMITATE = ("train.method=sft", "curation.imitate=any", "train.optimizer_steps=4", "gate.promote_on_likelihood=true")


def test_held_out_users_decide_and_teach_nothing(new_clawpipe, tmp_path):
    clawpipe = new_clawpipe("conversations")
    lines = [
        {
            "session_id": f"s{number}",
            "user": f"user{number // 2}",
            "messages": [
                {"role": "user", "content": f"What is {number} and {number + 3}?"},
                {"role": "assistant", "content": f"It is {2 * number + 3}."},
            ],
        }
        for number in range(40)
    ]
    (tmp_path / "chats.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    read = clawpipe("ingest", str(tmp_path / "chats.jsonl"), "--json").json
    status = clawpipe.night(*CONVERSATIONS, *IMITATE, f"trajectories=[{read['dataset']['digest']}]")
    steps = {step["name"]: step for step in status["steps"]}
    held = steps["hold_out"]["filtered"]["held out"]
    assert 0 < held < 40
    assert held % 2 == 0  # both sessions of a user
    assert steps["round-1/train"]["rows_in"] == 40 - held
    assert steps["draw_conversations"]["rows_out"] == status["heldout"]["candidate"]["n"] == held
    assert (status["verdict"], status["measure"]) == ("PROMOTE", "likelihood")
    assert status["heldout"]["candidate"]["log_prob"] > status["heldout"]["base"]["log_prob"]
    assert "letters" not in status["compared"]
    sides = {role: rows_of(clawpipe.home.store, steps["hold_out"]["artifacts"][role]) for role in ("output", "heldout")}
    assert {row["user_id"] for row in sides["output"]} & {row["user_id"] for row in sides["heldout"]} == set()
    trace = clawpipe("trace", "models:/clawpipe-tiny@champion", "--json")
    assert trace.code == 0, trace.stderr
    assert all(row["trajectory_id"] in trace.stdout for row in sides["output"])
    assert not any(row["trajectory_id"] in trace.stdout for row in sides["heldout"])
    gone = clawpipe("forget", "--user", sides["heldout"][0]["user_id"], "--json")
    assert gone.code == 0, gone.stderr
    assert (gone.json["trajectories"], gone.json["still_held"], gone.json["models"]) == (2, [], [])


def rows_of(store: Path, artifact: dict[str, Any]) -> list[dict[str, Any]]:
    files = (store / artifact["name"] / artifact["digest"]).glob("*.parquet")
    return [row for file in files for row in pq.read_table(file).to_pylist()]
