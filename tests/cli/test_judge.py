"""`clawpipe judge`: verdicts on a file, and how far judges can be trusted."""

from __future__ import annotations

import json

import pytest

from clawpipe.cli.main import app
from clawpipe.errors import ConfigError
from clawpipe.play.judging.report import agreements, judged
from clawpipe.play.judging.votes import Vote
from tests.judging.fake_judge import fake_judge, verdict


@pytest.fixture
def chats(tmp_path):
    said = [["How many lamps?", "3 lamps.", "Thanks!"], ["How many desks?", "3 lamps.", "No, I meant desks."]]
    lines = [
        {"messages": [{"role": role, "content": text} for role, text in zip(["user", "assistant", "user"], texts, strict=True)]}
        for texts in said
    ]
    (tmp_path / "chats.jsonl").write_text("\n".join(map(json.dumps, lines)))
    return str(tmp_path / "chats.jsonl")


def run(*words: str) -> None:
    app(["judge", *words], standalone_mode=False)


def test_rules_judge_a_file(home, chats, capsys):
    run("try", chats, "--json")
    found = json.loads(capsys.readouterr().out)["verdicts"]
    assert [(one["conversation"], one["turn"], one["value"], one["reason"]) for one in found] == [
        (0, 0, 1.0, "thanks"),
        (1, 0, -1.0, "complaint"),
    ]


def test_a_judge_of_whole_conversations_is_shown_too(home, chats, capsys):
    """Its scores were left out, and every turn had no verdict."""
    run("try", chats, "--scorer", "repetition", "--option", "words=3")
    told = capsys.readouterr().out
    assert "0/whole" in told
    assert "2 of 2 conversations have a verdict of repetition" in told


def test_a_file_is_judged_as_if_it_had_been_ingested(home, tmp_path, capsys):
    """A result that its record marks as failed was none here, and judges were sent secrets."""
    call = {"id": "1", "function": {"name": "stock", "arguments": "{}"}}
    messages = [
        {"role": "user", "content": "Is ann@corp.io there?"},
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "1", "content": "nobody there", "is_error": True},
    ]
    (tmp_path / "one.jsonl").write_text(json.dumps({"messages": messages}))
    run("try", str(tmp_path / "one.jsonl"), "--json")
    [found] = json.loads(capsys.readouterr().out)["verdicts"]
    assert (found["reason"], found["request"]) == ("failed-call", "Is [REDACTED:email] there?")


def test_each_verdict_is_shown_with_its_votes(home, chats, capsys):
    with fake_judge(lambda system, document: verdict(system, 1 if "Thanks" in document else -1, "Count the desks.")) as judge:
        words = ("try", chats, "--scorer", "prm", "--option", f"url={judge.url}", "--option", "model=m")
        run(*words)
        shown = capsys.readouterr().out
        run(*words)
    assert len(judge.asked) == 6
    assert "1/0   -1  votes -1 -1 -1" in shown
    assert "Count the desks." in shown
    assert shown == capsys.readouterr().out


def test_the_report_counts_what_was_asked(home, chats, capsys):
    with fake_judge(lambda system, document: verdict(system, 1)) as judge:
        run("try", chats, "--scorer", "prm", "--option", f"url={judge.url}", "--option", "model=m")
    capsys.readouterr()
    run("report", "--json")
    (model,) = json.loads(capsys.readouterr().out)["models"]
    assert (model["votes"], model["turns"], model["malformed"], model["unanimous"]) == (6, 2, 0, 1.0)
    assert (model["prompt_tokens"], model["reply_tokens"]) == (600, 60)
    run("report")
    assert "m voted +1" in capsys.readouterr().out


def test_a_judge_that_is_not_set_up_is_refused(home, chats):
    with pytest.raises(ConfigError, match="jury"):
        run("try", chats, "--scorer", "prm")


def vote(subject: str, number: int, value: int | None) -> Vote:
    return Vote(f"{subject}{number}", "m", "1", number, subject, "t", "raw", value, (), 1, 1, 0.0)


def test_agreement_among_votes():
    """Of three votes 1, 1, -1 one pair of three agrees; of 1 and 1 the only one does; a lone vote says nothing."""
    votes = [
        vote("a", 0, 1),
        vote("a", 1, 1),
        vote("a", 2, -1),
        vote("b", 0, 1),
        vote("b", 1, 1),
        vote("c", 0, 0),
        vote("c", 1, None),
    ]
    (found,) = judged(votes)
    assert found.agreement == pytest.approx((1 / 3 + 1) / 2)
    assert (found.unanimous, found.malformed, found.values) == (0.5, 1, {-1: 1, 0: 1, 1: 4})


def test_agreement_with_others_beyond_chance():
    """Ten trajectories: the judge and the verifier say good of 4 alike, bad of 4 alike: 0.8, where chance gives 0.5."""
    sides = [(1, True)] * 4 + [(-1, False)] * 4 + [(1, False), (-1, True)]
    scored = [
        [
            {"turn": None, "scorer": "prm", "origin": "judge", "value": mine, "success": None},
            {"turn": None, "scorer": "v", "origin": "verifier", "value": 0.0, "success": theirs},
        ]
        for mine, theirs in sides
    ]
    scored[0].append({"turn": 0, "scorer": "prm", "origin": "judge", "value": 1, "success": None})
    scored[0].append({"turn": 0, "scorer": "thumb", "origin": "user", "value": 1, "success": None})
    with_users, with_verifiers = agreements(scored)
    assert (with_verifiers.n, with_verifiers.agree, with_verifiers.kappa) == (10, 0.8, pytest.approx(0.6))
    assert (with_users.origin, with_users.kind, with_users.n, with_users.kappa) == ("user", "turn", 1, None)
