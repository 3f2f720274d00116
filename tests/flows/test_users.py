"""A night for each user, on what that user said, for a model of that user alone."""

from __future__ import annotations

import json

import pytest

from clawpipe.core.config.registry import model_of_user, user_digest
from clawpipe.errors import BusyError, ConfigError, DataError
from flows.users import _of_user, each
from tests.flows.test_conversation_night import rows_of

PER_USER = ("registry.per=user", "environment.name=conversations", "rollouts=null", "rounds=1", "evaluation.heldout_share=0.4")
IMITATE = ("train.method=sft", "curation.imitate=any", "train.optimizer_steps=4", "gate.promote_on_likelihood=true")
ADDS_UP = ("gate.alpha=0.5", "gate.adds_up=true", "trajectories=[all]")


def chats(user, letter, count, first=0):
    return [
        {
            "session_id": f"{user}-{number}",
            "user": user,
            "messages": [
                {"role": "user", "content": f"Say something, {number} times."},
                {"role": "assistant", "content": letter * 6},
            ],
        }
        for number in range(first, first + count)
    ]


def ingest(clawpipe, tmp_path, lines):
    file = tmp_path / f"chats-{lines[0]['session_id']}.jsonl"
    file.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    assert clawpipe("ingest", str(file), "--json").code == 0


@pytest.mark.slow
@pytest.mark.long
def test_one_users_words_move_only_that_users_model(new_clawpipe, tmp_path):
    clawpipe = new_clawpipe("users")
    ingest(clawpipe, tmp_path, [*chats("ann", "a", 24), *chats("bob", "b", 24)])
    done = clawpipe.run(*PER_USER, *IMITATE, *ADDS_UP)
    assert done.code == 0, done.stdout + done.stderr
    models = {user: model_of_user("clawpipe-tiny", user_digest(user)) for user in ("ann", "bob")}
    found = {night["model"]["name"]: night for night in done.json["nights"]}
    assert set(found) == set(models.values())
    for user, name in models.items():
        steps = {step["name"]: step for step in found[name]["steps"]}
        assert steps["hold_out"]["rows_in"] == 24
        assert 0 < steps["hold_out"]["filtered"]["held out"] < 24  # sessions, not the user, are held out
        assert found[name]["verdict"] == "PROMOTE"
        rows = [rows_of(clawpipe.home.store, steps["hold_out"]["artifacts"][role]) for role in ("output", "heldout")]
        assert {row["user_id"] for side in rows for row in side} == {user}
        trace = clawpipe("trace", f"models:/{name}@champion", "--json").stdout
        assert all(row["trajectory_id"] in trace for row in rows[0])
    assert "ann" not in "".join(path.read_text() for path in clawpipe.home.runs.rglob("config.json"))

    bobs = clawpipe.registered(models["bob"])
    ingest(clawpipe, tmp_path, chats("ann", "a", 8, first=24))
    again = clawpipe.run(*PER_USER, *IMITATE, *ADDS_UP, "night=second")
    assert again.code == 0, again.stdout + again.stderr
    assert [night["heldout"]["champion"] is not None for night in again.json["nights"]] == [True]  # ann's alone, against her own
    assert clawpipe.registered(models["bob"]) == bobs

    nothing = clawpipe.run(*PER_USER, *IMITATE, *ADDS_UP, "night=third")
    assert (nothing.code, "no user has said anything" in nothing.stdout) == (BusyError.exit_code, True)
    gone = clawpipe("forget", "--user", "ann", "--json").json
    assert {model["name"] for model in gone["models"]} == {models["ann"]}


def test_words_for_datasets_become_queries_for_one_user():
    assert _of_user("trajectories", "all", "0a") == "user = sha256:0a"
    assert _of_user("trajectories", "new", "0a") == "user = sha256:0a and since last night"
    assert _of_user("scores", "source = captured", "0a") == "user = sha256:0a and source = captured"
    with pytest.raises(ConfigError, match="the rows of all users"):
        _of_user("trajectories", "latest", "0a")


def test_a_night_that_fails_keeps_no_other_user_from_theirs():
    told, ran = [], []

    def run(own):
        ran.append(own)
        if own == ["bob"]:
            raise DataError("bob said too little")

    each(iter([["ann"], ["bob"], ["cleo"]]), run, told.append)
    assert (ran, [error.what for error in told]) == ([["ann"], ["bob"], ["cleo"]], ["bob said too little"])
    with pytest.raises(DataError, match="too little"):
        each(iter([["bob"]]), run, told.append)


def test_a_home_that_is_in_use_ends_all_nights_at_once():
    def run(own):
        raise BusyError("another night runs")

    with pytest.raises(BusyError):
        each(iter([["ann"], ["bob"]]), run, lambda error: None)
