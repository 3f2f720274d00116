"""From an agent's request to a stored row, by the commands that a person types."""

from __future__ import annotations

import json

import pytest

from clawpipe.cli import main
from clawpipe.core.store.home import Home
from clawpipe.data.capture.segments import segments_dir

ASKED = {"role": "user", "content": "one two"}


@pytest.fixture
def run(gateway, monkeypatch, capsys):
    """run(*words): what a command prints as JSON, in the gateway's home."""
    monkeypatch.setenv("CLAWPIPE_HOME", str(gateway.home.root))
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)

    def command(*words, code=0):
        with pytest.raises(SystemExit) as end:
            main.run([*words, "--json"])
        out = capsys.readouterr().out
        assert end.value.code == code, out
        return json.loads(out)

    return command


@pytest.mark.filterwarnings("ignore:The ``noload`` loader strategy is deprecated:DeprecationWarning")
def test_a_session_is_captured_shown_closed_and_stored(gateway, run, capsys):
    headers = {"X-Session-Id": "e2e", "X-Turn-Type": "main"}
    gateway.ask("one two", headers=headers, temperature=0.5)
    history = [ASKED, {"role": "assistant", "content": "one two "}, {"role": "user", "content": "three"}]
    answer = gateway.ask(headers=headers, messages=history, temperature=0.5)
    gateway.ask("Read HEARTBEAT.md if it exists", headers={"X-Session-Id": "e2e"}, temperature=0.5)
    opinion = gateway.post("/v1/feedback", {"response_id": answer.id, "thumb": "up", "comment": "nice"})
    assert opinion.status_code == 201

    [listed] = [one for one in run("sessions", "list")["sessions"] if one["session"] == "e2e"]
    assert (listed["main"], listed["side"], listed["with_tokens"], listed["feedback"]) == (2, 1, 3, 1)
    assert listed["fates"] == {"goes on": 3}
    shown = run("sessions", "show", "e2e")
    assert [(turn["relation"], turn["continues"]) for turn in shown["turns"]] == [
        ("starts", None),
        ("continues", 1),
        ("starts", None),
    ]

    folder = str(segments_dir(gateway.home))
    before = run("ingest", folder)["trajectories"]
    assert before == 0
    assert run("sessions", "close", "e2e") == {"session": "e2e", "closed": True}
    assert run("sessions", "show", "e2e")["turns"][0]["fate"] == "waits"
    assert run("ingest", folder)["trajectories"] == 2
    assert run("ingest", folder)["trajectories"] == 0
    shown = run("sessions", "show", "e2e")
    assert [turn["fate"] for turn in shown["turns"]] == ["stored"] * 3
    assert shown["turns"][0]["trajectory_id"] == shown["turns"][1]["trajectory_id"]
    assert {held["name"]: held["rows"] for held in shown["datasets"]} == {"trajectories": 2, "scores": 1}
    assert gateway.ask("still running").choices

    with pytest.raises(SystemExit):
        main.run(["sessions", "export", "e2e"])
    records = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [record["kind"] for record in records] == ["turn", "turn", "turn", "feedback", "done"]
    assert records[1]["answers"][0]["token_ids"] == [100]
    assert run("sessions", "show", "nobody", code=2)["error"] == "NotFoundError"


def test_a_session_may_be_ended_over_http(gateway, run):
    gateway.ask("bye", headers={"X-Session-Id": "over-http"})
    assert gateway.post("/v1/sessions/over-http/done", {}).json() == {"id": "over-http", "object": "session", "done": True}
    [listed] = [one for one in run("sessions", "list")["sessions"] if one["session"] == "over-http"]
    assert listed["closed"]


def test_keys_are_made_listed_and_revoked(run):
    made = run("keys", "make", "bob", "--owner", "bob@host", "--per-minute", "3")
    [listed] = [key for key in run("keys", "list")["keys"] if key["name"] == "bob"]
    assert (listed["owner"], listed["per_minute"], listed["revoked"]) == ("bob@host", 3, None)
    assert made["key"] not in json.dumps(run("keys", "list"))
    assert run("keys", "make", "bob", code=2)["error"] == "ConfigError"
    assert run("keys", "make", "no name", code=2)["error"] == "ConfigError"
    assert run("keys", "revoke", "bob")["revoked"]
    assert run("keys", "revoke", "nobody", code=2)["error"] == "NotFoundError"


def test_no_key_no_gateway(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("CLAWPIPE_HOME", str(tmp_path / "empty"))
    monkeypatch.delenv("CLAWPIPE_API_KEY", raising=False)
    with pytest.raises(SystemExit) as end:
        main.run(["gateway", "--upstream", "http://127.0.0.1:1"])
    assert end.value.code == 2
    assert "clawpipe keys make NAME" in capsys.readouterr().err
    assert not Home(tmp_path / "empty").root.exists()
