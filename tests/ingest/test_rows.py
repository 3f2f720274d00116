"""What a conversation becomes."""

import hashlib
import json

import pytest

from clawpipe.core.contracts.validate import validate
from clawpipe.data.ingest.intake.options import Options
from clawpipe.errors import ConfigError
from clawpipe.start.proposing.report import ingest_report


def test_text_has_a_task_a_group_and_no_tokens(desk, make):
    desk.write("a.jsonl", make.lines(make.chat("how many?", "four", session_id="s", user="u", model="m", mood="good")))
    [row] = desk.rows(desk.ingest())
    assert row["item_id"] == hashlib.sha256(b"how many?").hexdigest()[:16]
    assert (row["group_id"], row["policy_version"], row["rollout_index"]) == (row["item_id"] + "/", None, 0)
    assert (row["tokens"], row["token_ids"], row["turns"], row["kinds"]) == ("none", [], [], ["main"])
    assert (row["session_id"], row["user_id"], row["model"], row["source"]) == ("s", "u", "m", "imported")
    assert row["origin"] == {"format": "chat", "file": str(desk.folder / "a.jsonl"), "line": 1}
    assert json.loads(row["extra"])["mood"] == "good"


def test_recorded_tokens_keep_masks_logprobs_and_spans(desk, make):
    desk.write("a.jsonl", make.lines(make.group(1.0, 0.0, generation_params={"temperature": 0.7})))
    done = desk.ingest(policy_version="p7")
    first, second = desk.rows(done)
    assert (first["token_ids"], first["loss_mask"]) == ([7, 8, 9, 20, 2], [False, False, False, True, True])
    assert second["logprobs"] == [0.0, 0.0, 0.0, -0.5, -0.25]
    assert first["turns"] == [{"start": 3, "end": 5, "kind": "main", "finish_reason": "stop"}]
    assert (first["prompt_tokens"], first["temperature"], first["policy_version"]) == (3, 0.7, "p7")
    assert first["group_id"] == second["group_id"] == first["item_id"] + "/p7"
    assert [row["value"] for row in desk.rows(done, "scores")] == [1.0, 0.0]


def logged(**request):
    """One request and what an engine sampled for it."""
    entries = {"content": [{"logprob": -0.5}, {"logprob": -1.0}]}
    choice = {"message": {"content": "hey"}, "token_ids": [7, 8], "logprobs": entries}
    asked = {"messages": [{"role": "user", "content": "hi"}]} | request
    return {"request": asked, "response": {"prompt_token_ids": [5, 6], "choices": [choice]}}


def test_a_row_says_what_its_log_probs_are_of(desk, make):
    """Raw ones were stored as if they were at the sampling temperature; greedy ones, and those of nobody knows what, as if at 1."""
    desk.write("a.jsonl", make.lines(logged(temperature=0.8), logged(temperature=0), logged()))
    desk.write("b.jsonl", make.lines(make.group(1.0, generation_params={"temperature": 0.8}), make.chat("how many?", "four")))
    done = desk.ingest()
    assert [(row["temperature"], row["logprobs_kind"]) for row in desk.rows(done)] == [
        (0.8, "raw"),
        (0.0, "raw"),
        (1.0, "none"),
        (0.8, "unknown"),
        (0.0, None),
    ]
    assert any("1 rows have log-probs of which no ratio" in warning for warning in ingest_report(desk.home, done)["warnings"])


def test_nobody_says_a_kind_of_log_probs_of_a_changed_draw(desk, make):
    desk.write("a.jsonl", make.lines(logged(temperature=0.5, top_p=0.9)))
    assert [row["logprobs_kind"] for row in desk.rows(desk.ingest(logprobs="tempered"))] == ["none"]


def test_a_person_may_say_what_the_file_does_not(desk, make):
    desk.write("a.jsonl", make.lines(logged(), logged(temperature=0.7)))
    rows = desk.rows(desk.ingest(temperature=0.9, logprobs="tempered"))
    assert [(row["temperature"], row["logprobs_kind"]) for row in rows] == [(0.9, "tempered"), (0.7, "tempered")]
    with pytest.raises(ConfigError, match="no sampling temperature"):
        Options(temperature=-1.0)
    with pytest.raises(ConfigError, match="'warm' log-probs"):
        Options(logprobs="warm")


def test_a_log_prob_above_0_is_refused_but_for_rounding(desk, make):
    groups = [make.group(1.0, inference_logprobs=[[1.0, 1.0, 1.0, value, -1.0]], env_id=value) for value in (1e-7, 40.0, 0.5)]
    desk.write("a.jsonl", make.lines(*groups))
    report = desk.ingest_report()
    assert (report["trajectories"], report["quarantined"]) == (1, {"log-prob of a sampled token out of range": 2})


def test_tokens_without_logprobs_are_recorded_as_they_are(desk, make):
    """They were text, and what was sampled was made up anew by a template."""
    desk.write("a.jsonl", make.lines(make.group(1.0, inference_logprobs=None)))
    [row] = desk.rows(desk.ingest(policy_version="p1"))
    assert (row["tokens"], row["token_ids"], row["loss_mask"]) == ("recorded", [7, 8, 9, 20, 2], [False] * 3 + [True] * 2)
    assert (row["logprobs"], row["logprobs_kind"], row["policy_version"]) == ([0.0] * 5, "none", "p1")
    assert row["extra"] is None


@pytest.mark.parametrize(
    ("parameters", "option", "kept"),
    [
        ({"temperature": 0.7}, 0.9, 0.7),
        ({}, 0.9, 0.9),
        ({"temperature": 0.7, "top_p": 0.5}, None, None),
        ({"temperature": 0}, None, None),
    ],
)
def test_absent_logprobs_can_be_computed_at_a_temperature(desk, make, parameters, option, kept):
    desk.write("a.jsonl", make.lines(make.group(1.0, inference_logprobs=None, generation_params=parameters)))
    [row] = desk.rows(desk.ingest(policy_version="p1", temperature=option))
    assert json.loads(row["extra"]).get("sampled_at") == kept


def test_tokens_of_which_none_can_be_trained_on_stay_aside(desk, make):
    masks = [[7, 8, 9, 20, 2], [-100] * 5]
    desk.write("a.jsonl", make.lines(make.group(1.0, 0.0, masks=masks, inference_logprobs=None)))
    rows = desk.rows(desk.ingest())
    assert [row["tokens"] for row in rows] == ["none", "none"]
    assert [json.loads(row["extra"])["mask"] for row in rows] == [[True] * 5, [False] * 5]


def test_a_bad_group_is_set_aside_and_its_neighbours_are_kept(desk, make):
    """Of a group without one of its sequences the others would be compared with another mean."""
    good = make.group(1.0, 0.0, 0.5, inference_logprobs=None, group_overrides={"group_size": 3})
    said = make.group(1.0, 0.0)["messages"]
    bad = [
        make.group(1.0, 0.0, messages=None),
        make.group(1.0, 0.0, messages=[said[0], None]),
        make.group(1.0, 0.0, scores=None),
        make.group(1.0, 0.0, scores=[1.0, None]),
        make.group(1.0, 0.0, tokens=[["input_ids"], ["input_ids"]]),
    ]
    desk.write("a.jsonl", make.lines(bad[0], good, *bad[1:]))
    (desk.folder / "a.html").write_text("<html><body>groups</body></html>")
    report = desk.ingest_report()
    assert (report["trajectories"], report["with_tokens"]) == (3, 3)
    assert report["quarantined"] == {
        "messages: missing (set include_messages)": 1,
        "messages[]: not a list": 1,
        "scores: missing": 1,
        "scores[]: not a number": 1,
        "tokens[]: not token ids": 1,
    }


def test_nobody_named_the_policy(desk, make):
    desk.write("a.jsonl", make.lines(make.group(1.0, 0.5)))
    report = desk.ingest_report()
    assert report["with_tokens"] == 2
    assert any("--policy-version" in warning for warning in report["warnings"])


@pytest.mark.parametrize(
    ("mask", "logprobs", "reason"),
    [
        ([7, 8, 9, 21, 2], [-1.0] * 5, "first token is sampled"),
        ([-100] * 5, [1.0] * 5, "recorded, but nothing is sampled"),
        ([-100, -100, -100, 21, 2], [1.0, 1.0, 1.0, -0.5, -2e4], "log-prob of a sampled token out of range"),
    ],
)
def test_a_group_with_one_impossible_sequence_is_refused(desk, make, mask, logprobs, reason):
    group = make.group(1.0, 0.0)
    group["masks"][1], group["inference_logprobs"][1] = mask, logprobs
    desk.write("a.jsonl", make.lines(group))
    report = desk.ingest_report()
    assert (report["quarantined"], report["trajectories"]) == ({reason: 1}, 0)


def test_a_session_becomes_turns_with_their_scores(desk, make):
    turns = [make.turn("s", 1, "a?", "b"), make.turn("s", 2, "a?", "b", "c?", "d")]
    side = make.turn("heartbeat:1", 1, "ping", "pong")
    desk.write("a.jsonl", make.lines(make.judged("s", 2, -1), *turns, side))
    done = desk.ingest()
    main, other = desk.rows(done)
    assert [message["content"] for message in main["messages"]] == ["a?", "b", "c?", "d"]
    assert (main["kinds"], other["kinds"]) == (["main", "main"], ["side"])
    [score] = desk.rows(done, "scores")
    assert (score["trajectory_id"], score["turn"], score["value"], score["origin"]) == (main["trajectory_id"], 1, -1.0, "judge")


def test_a_file_of_side_turns_is_told_loudly(desk, make):
    desk.write("a.jsonl", make.lines(make.turn("cron:1", 1, "ping", "pong")))
    assert any("every turn is a side turn" in warning for warning in desk.ingest_report()["warnings"])


def test_a_file_without_sessions_is_told_loudly(desk, make):
    desk.write("a.jsonl", make.lines(make.chat("a", "b")))
    assert any("no conversation has a session id" in warning for warning in desk.ingest_report()["warnings"])


def test_warnings_name_only_the_files_that_lack_something(desk, make):
    desk.write("a.jsonl", make.lines(make.chat("a", "b", session_id="s")))
    desk.write("cron.jsonl", make.lines(make.turn("cron:1", 1, "ping", "pong")))
    desk.write("nobody.jsonl", make.lines(make.turn("unknown", 1, "c", "d")))
    side, unnamed = desk.ingest_report()["warnings"]
    assert ("cron.jsonl: every turn is a side turn" in side, "nobody.jsonl: no conversation has" in unnamed) == (True, True)


def test_everything_that_is_stored_keeps_its_contract(desk, make):
    rows = [make.chat("a", "b"), make.batch_row("q", "r"), make.group(0.0, 1.0), make.turn("s", 1, "a?", "b"), {"what": 1}]
    desk.write("a.jsonl", make.lines(*rows, make.chat("a", "b")))
    done = desk.ingest()
    assert set(done.datasets) == {"trajectories", "scores", "quarantine"}
    for name, ref in done.datasets.items():
        assert validate(desk.store, ref, name).filtered == {}


def test_labels_are_joined_by_prompt_and_occurrence(desk, make, tmp_path):
    labels = tmp_path / "labels.jsonl"
    report = [{"prompt": "q", "success": False}, {"prompt": "q ", "success": True, "by": "me"}, {"prompt": "r", "score": 0.5}]
    labels.write_bytes(make.lines(*report))
    desk.write("a.jsonl", make.lines(*(make.batch_row(asked, str(n)) for n, asked in enumerate("qrqrq"))))
    done = desk.ingest(labels=labels)
    answers = {row["trajectory_id"]: row["messages"][-1]["content"] for row in desk.rows(done)}
    given = {answers[row["trajectory_id"]]: row for row in desk.rows(done, "scores") if row["origin"] == "user"}
    assert {answer: row["value"] for answer, row in given.items()} == {"0": 0.0, "2": 1.0, "1": 0.5, "3": 0.5}
    assert given["2"]["success"] is True
    assert json.loads(given["2"]["evidence"]) == {"by": "me"}


def test_a_secret_costs_a_row_its_tokens(desk, make):
    secret = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
    group = make.group(1.0, 0.0)
    group["messages"][0][1]["content"] = f"the key is {secret}"
    desk.write("a.jsonl", make.lines(group, make.chat("q", "a", note=secret)) + secret.encode() + b"\n")
    done = desk.ingest()
    leaky, sound, noted = desk.rows(done)
    assert (leaky["tokens"], leaky["token_ids"], sound["tokens"]) == ("none", [], "recorded")
    assert "[REDACTED" in leaky["messages"][1]["content"]
    assert "[REDACTED" in noted["extra"]
    assert "[REDACTED" in desk.rows(done, "quarantine")[0]["row"]
    assert not [file for file in desk.home.root.rglob("*") if file.is_file() and secret.encode() in file.read_bytes()]


def test_turns_without_content_are_side_turns_and_counted(desk, make):
    """Such turns were `main`: a night trained on the end of an empty reply."""
    row = make.chat("q", "", session_id="s")
    row["messages"] += [{"role": "user", "content": "?"}, {"role": "assistant", "content": [{"type": "odd", "x": 1}]}]
    desk.write("a.jsonl", make.lines(row))
    report = desk.ingest_report()
    [stored] = desk.stored()
    assert stored["kinds"] == ["side", "side"]
    assert json.loads(stored["extra"])["messages"] == [{"message": 3, "content": {"unread": [{"type": "odd", "x": 1}]}}]
    assert report["silent"] == {"turns without content": 1, "turns with parts that are no text": 1}
    assert sum("nothing is learned of them" in warning for warning in report["warnings"]) == 2


def test_a_judge_finds_its_turn_beside_one_that_says_nothing(desk, make):
    said = ["hi", "", "more", "sure"]
    desk.write("turns.jsonl", make.lines(make.turn("s", 1, *said[:2]), make.turn("s", 2, *said)))
    desk.ingest()
    desk.write("judge.jsonl", make.lines(make.judged("s", 2, -1)))
    desk.ingest()
    assert [(row["turn"], row["value"]) for row in desk.stored("scores")] == [(1, -1.0)]


def test_names_that_redaction_makes_equal_keep_their_entries(desk, make):
    """The later one took the place of the first."""
    mails = {"ann@harbour-tours.com": 1, "bob@harbour-tours.com": 2}
    row = make.chat("q", "a", book=mails)
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": json.dumps({"who": mails})}}
    row["messages"][1]["tool_calls"] = [call]
    desk.write("a.jsonl", make.lines(row))
    [stored] = desk.rows(desk.ingest())
    [made] = stored["messages"][1]["tool_calls"]
    for kept in (json.loads(stored["extra"])["book"], json.loads(made["arguments"])["who"]):
        assert sorted(kept.values()) == [1, 2]
        assert not any("@" in name for name in kept)


TOOLS = [{"type": "function", "function": {"name": "stock", "description": "ask ann.b@tessel.io"}}]


def test_a_pair_keeps_further_fields_without_secrets(desk, make):
    pair = {"prompt": "q", "chosen": "a", "rejected": "b", "tools": TOOLS, "annotator": "ann.b@tessel.io", "votes": [3, 1]}
    file = desk.write("a.jsonl", b"\n" + make.lines(pair))
    [row] = desk.rows(desk.ingest(), "preference_pairs")
    assert row["origin"] == {"format": "hf-preference", "file": str(file), "line": 2}
    assert json.loads(row["extra"]) == {"annotator": "[REDACTED:email]", "votes": [3, 1]}
    assert json.loads(row["tools"])[0]["function"] == {"name": "stock", "description": "ask [REDACTED:email]"}


def test_a_pair_that_says_no_more_has_no_more(desk, make):
    desk.write("a.jsonl", make.lines({"prompt": "q", "chosen": "a", "rejected": "b"}))
    [row] = desk.rows(desk.ingest(), "preference_pairs")
    assert (row["tools"], row["extra"]) == (None, None)


def test_a_prompt_says_where_it_was_read(desk, make):
    file = desk.write("a.jsonl", make.lines({"prompt": "q"}))
    [row] = desk.rows(desk.ingest(), "task_items")
    assert row["origin"] == {"format": "hf-prompt", "file": str(file), "line": 1}
