"""A night on conversations that nobody labelled: a judge reads how each turn was received. Its server is a fake."""

from __future__ import annotations

import json

import pytest

from tests.flows.test_conversation_night import CONVERSATIONS, rows_of
from tests.judging.fake_judge import fake_judge, verdict

pytestmark = pytest.mark.slow

HINT = "Give the sum and nothing else."


def chats():
    return [
        {
            "session_id": f"s{number}",
            "messages": [
                {"role": "user", "content": f"What is {number} and {number + 3}?"},
                {"role": "assistant", "content": f"It is {2 * number + 3}."},
                {"role": "user", "content": "Splendid." if number % 2 else "Rubbish."},
            ],
        }
        for number in range(40)
    ]


def test_a_judge_compares_the_models_answers_blind_and_in_both_orders(new_clawpipe, tmp_path):
    clawpipe = new_clawpipe("compared")
    (tmp_path / "chats.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in chats()))
    read = clawpipe("ingest", str(tmp_path / "chats.jsonl"), "--json").json
    data = (f"trajectories=[{read['dataset']['digest']}]", "train.method=sft", "curation.imitate=any", "train.optimizer_steps=2")
    with fake_judge(lambda system, document: verdict(system, 1)) as judge:  # it always prefers what comes first
        comparing = f"evaluation.judge={{name: prm, options: {{url: '{judge.url}', model: m, votes: 1}}}}"
        status = clawpipe.night(*CONVERSATIONS, *data, comparing)
    asked = [json.loads(body["messages"][1]["content"]) for body in judge.asked]
    shown = {json.dumps([one["conversation"], one["first"], one["second"]]) for one in asked}
    assert len(shown) == len(asked) > 0
    assert {json.dumps([one["conversation"], one["second"], one["first"]]) for one in asked} == shown
    assert (status["verdict"], status["measure"]) == ("HOLD", "judged")
    assert (status["heldout"]["base"]["success"], status["heldout"]["candidate"]["success"]) == (0.0, 0.0)
    assert "what a judge says of their answers" in status["compared"]
    steps = {step["name"]: step["details"] for step in status["steps"]}
    assert steps["evaluate/candidate"]["ties"] == steps["evaluate/candidate"]["items"] > 0


def test_a_judge_chooses_what_is_imitated_and_is_asked_once(new_clawpipe, tmp_path):
    clawpipe = new_clawpipe("judged")
    (tmp_path / "chats.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in chats()))
    read = clawpipe("ingest", str(tmp_path / "chats.jsonl"), "--json").json
    data = (f"trajectories=[{read['dataset']['digest']}]", "train.method=sft", "train.optimizer_steps=2")
    with fake_judge(lambda system, document: verdict(system, 1 if "Splendid" in document else -1, HINT)) as judge:
        scorers = f"scorers=[{{name: prm, options: {{url: '{judge.url}', model: m}}}}]"
        status = clawpipe.night(*CONVERSATIONS, *data, scorers)
        asked = len(judge.asked)
        clawpipe.night(*CONVERSATIONS, *data, scorers, "train.optimizer_steps=1")
        assert len(judge.asked) == asked
    steps = {step["name"]: step for step in status["steps"]}
    assert asked == 3 * 40  # those held out are judged, too: only what was received well is evidence
    scores = rows_of(clawpipe.home.store, steps["round-1/score"]["artefacts"]["output"])
    assert steps["score"]["rows_out"] == steps["hold_out"]["set_aside"]["held out"]  # a step like any other, not an unfinished line
    assert {row["origin"] for row in scores} == {"judge"}
    assert {tuple(row["hints"]) for row in scores if row["turn"] is not None} == {(HINT,)}
    good = sum(row["turn"] is None and row["value"] > 0 for row in scores)
    assert steps["round-1/train"]["rows_in"] == good < steps["round-1/validate"]["rows_out"]
    report = clawpipe("judge", "report", "--json").json
    assert report["models"][0]["votes"] == asked
