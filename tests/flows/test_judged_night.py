"""A night on conversations that nobody labelled: a judge reads how each turn was received. Its server is a fake."""

from __future__ import annotations

import json
import signal
import sqlite3
import threading
from contextlib import closing

import pytest

from tests.flows.test_conversation_night import CONVERSATIONS, rows_of
from tests.flows.test_kill import outcome, release_accelerator
from tests.judging.fake_judge import fake_judge, verdict
from tests.waiting import wait_until

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


def test_a_judge_compares_answers_blind_and_in_both_orders(new_clawpipe, tmp_path):
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
    scores = rows_of(clawpipe.home.store, steps["round-1/score"]["artifacts"]["output"])
    assert steps["score"]["rows_out"] == steps["hold_out"]["filtered"]["held out"]  # a step like any other, not an unfinished line
    assert {row["origin"] for row in scores} == {"judge"}
    assert {tuple(row["hints"]) for row in scores if row["turn"] is not None} == {(HINT,)}
    good = sum(row["turn"] is None and row["value"] > 0 for row in scores)
    assert steps["round-1/train"]["rows_in"] == good < steps["round-1/validate"]["rows_out"]
    report = clawpipe("judge", "report", "--json").json
    assert report["models"][0]["votes"] == asked


@pytest.mark.long
def test_a_night_killed_while_judging_asks_nothing_twice(new_clawpipe, tmp_path):
    (tmp_path / "chats.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in chats()))
    go_on = threading.Event()

    def says(system, document):
        if len(judge.asked) > 50:
            go_on.wait()
        return verdict(system, 1 if "Splendid" in document else -1, HINT)

    with fake_judge(says) as judge:
        scorers = f"scorers=[{{name: prm, options: {{url: '{judge.url}', model: m, concurrency: 2}}}}]"
        killed, night = home_with_chats(new_clawpipe("judging-killed"), tmp_path / "chats.jsonl", scorers)
        kill_while(killed, night, lambda: len(judge.asked) == 52)
        go_on.set()
        for point in ("store.before_rename/scores", "step.before_record/score"):
            assert killed.run(*night, kill_at=point).code == -signal.SIGKILL
            await_end(killed)
        status = killed.night(*night)
        assert len(judge.asked) == 3 * 40 + 2  # the two that were under way when it was killed are asked again
        undisturbed, night = home_with_chats(new_clawpipe("judging-undisturbed"), tmp_path / "chats.jsonl", scorers)
        assert outcome(undisturbed.night(*night)) == outcome(status)
        assert len(judge.asked) == 2 * 3 * 40 + 2


@pytest.mark.long
def test_a_budget_holds_over_three_kills(new_clawpipe, tmp_path):
    """Each kill loses two requests that are under way; what they may have cost stays paid."""
    (tmp_path / "chats.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in chats()))
    most, each, gates = 9000, 110, [threading.Event() for _ in range(3)]

    def says(system, document):
        place = len(judge.asked)
        for number, gate in enumerate(gates, 1):
            if place > 12 * number:
                gate.wait()
        return verdict(system, 1 if "Splendid" in document else -1, HINT)

    with fake_judge(says) as judge:
        options = f"url: '{judge.url}', model: m, concurrency: 2, max_tokens: 64, budget_tokens: {most}"
        clawpipe, night = home_with_chats(
            new_clawpipe("budget-killed"), tmp_path / "chats.jsonl", f"scorers=[{{name: prm, options: {{{options}}}}}]"
        )
        for number, gate in enumerate(gates, 1):
            kill_while(clawpipe, night, lambda number=number: len(judge.asked) == 12 * number + 2)
            gate.set()
        done = clawpipe.run(*night)
        assert (done.code, "budget" in done.json["what"]) == (75, True)
        asked = len(judge.asked)
        assert clawpipe.run(*night).code == 75
        assert len(judge.asked) == asked  # the same command again spends nothing
    with closing(sqlite3.connect(clawpipe.home.root / "judging" / "spent.sqlite")) as database:
        [(spent, held)] = database.execute("select sum(prompt_tokens + reply_tokens), sum(held_tokens) from spent").fetchall()
    assert asked > 38  # it went on after the third kill
    assert spent == each * (asked - 6)
    assert each * asked <= spent + held <= most < 3 * 40 * each


def home_with_chats(clawpipe, file, scorers):
    """The home with these chats in it, and the settings of a night on them."""
    read = clawpipe("ingest", str(file), "--json").json
    data = f"trajectories=[{read['dataset']['digest']}]"
    return clawpipe, (*CONVERSATIONS, data, "train.method=sft", "train.optimizer_steps=2", scorers)


def kill_while(clawpipe, night, true):
    with clawpipe.started("run", *clawpipe.options(*night)) as process:
        wait_until(true, 120)
        process.kill()
    await_end(clawpipe)


def await_end(clawpipe):
    clawpipe.await_quiet()
    release_accelerator(clawpipe.api)
