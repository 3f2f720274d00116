"""`clawpipe ingest` for people and programs."""

import json
import subprocess
import sys
import zipfile

import pytest
from typer.testing import CliRunner

from clawpipe.cli.main import _outcome, app
from clawpipe.core.config import load_config

CHAT = {"messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "hey"}], "session_id": "a"}


@pytest.fixture
def file(tmp_path, home):
    path = tmp_path / "a.jsonl"
    path.write_text(json.dumps(CHAT) + "\n\n")
    return path


def test_one_object_for_programs(file, home):
    told = json.loads(CliRunner().invoke(app, ["ingest", str(file), "--json"]).output)
    assert (told["files"], told["lines"], told["accepted"], told["quarantined"]) == (1, 2, 1, {"blank line": 1})
    assert (told["trajectories"], told["turns"], told["dataset"]["rows"], told["quarantine"]["rows"]) == (1, 1, 1, 1)
    assert told["dataset"]["path"] == str(home.store / "trajectories" / told["dataset"]["digest"])


def test_words_for_people(file):
    output = CliRunner().invoke(app, ["ingest", str(file)]).output
    assert "1 x blank line" in output
    assert "1 trajectories" in output


@pytest.mark.usefixtures("quick_scripts")
def test_standard_input_is_read_every_time(home):
    command = [sys.executable, "-m", "clawpipe.cli.main", "ingest", "-", "--json"]
    first, again = (
        json.loads(subprocess.run(command, input=json.dumps(CHAT).encode(), capture_output=True, timeout=60).stdout)
        for _ in range(2)
    )
    assert (first["lines"], first["trajectories"]) == (1, 1)
    assert (again["lines"], again["trajectories"], again["repeated"]) == (1, 0, 1)


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["--format", "nonsense"], 2),
        (["--policy-version", "not a version"], 2),
        (["--labels", "nowhere.jsonl"], 2),
        (["nowhere"], 2),
    ],
)
def test_mistakes_are_told(file, words, code, capsys):
    assert _outcome(["ingest", str(file), *words, "--json"]) == code
    assert json.loads(capsys.readouterr().out)["exit_code"] == code


def test_nothing_accepted_is_bad_data(file, home, tmp_path):
    unknown = tmp_path / "b.jsonl"
    unknown.write_text('{"what": 1}\n')
    assert _outcome(["ingest", str(unknown)]) == 65
    assert _outcome(["ingest", str(unknown)]) == 0  # nothing new
    assert _outcome(["ingest", str(unknown), "--again", "--may-be-empty"]) == 0
    assert _outcome(["ingest", str(file), str(unknown)]) == 0  # a line of them was


def test_labels_that_are_none_are_bad_data(file, tmp_path, capsys):
    (tmp_path / "labels.json").write_text("{}\n")
    assert _outcome(["ingest", str(file), "--labels", str(tmp_path / "labels.json"), "--json"]) == 65
    assert "labels.json:1" in json.loads(capsys.readouterr().out)["where"]


def test_a_mapping_and_an_importer_of_ones_own_read_any_form(home, tmp_path):
    record = {"turns": CHAT["messages"], "stars": 4}
    (tmp_path / "a.jsonl").write_text(json.dumps(record) + "\n")
    (tmp_path / "own.py").write_text("def read(record):\n    return {'messages': record['turns'], 'reward': record['stars']}\n")
    for words in (["--map", "messages=turns", "--map", "reward=stars"], ["--format", f"{tmp_path / 'own.py'}:read"]):
        told = json.loads(CliRunner().invoke(app, ["ingest", str(tmp_path / "a.jsonl"), *words, "--json"]).output)
        assert (told["accepted"], told["scores"]["rows"]) == (1, 1)
    assert _outcome(["ingest", str(tmp_path / "a.jsonl"), "--map", "messages", "--json"]) == 2


def test_a_config_that_learns_from_what_was_ingested(file, home, tmp_path):
    """Whoever wanted to train on a log had to copy 64 characters a dataset into `-o`."""
    night = tmp_path / "night.yaml"
    words = ["ingest", str(file), "--output", str(night), "--json"]
    told = json.loads(CliRunner().invoke(app, words).output)
    config = load_config(night)
    assert (config.trajectories, config.rollouts, config.train.method) == ((told["dataset"]["digest"],), None, "sft")
    assert config.curation.imitate == "any"  # nobody judged the chat
    assert (config.environment.name, config.measure) == ("conversations", "likelihood")
    file.write_text(file.read_text() + json.dumps(CHAT | {"session_id": "b", "success": True}) + "\n")
    told = json.loads(CliRunner().invoke(app, words).output)  # of the new line alone
    again = load_config(night)
    assert again.trajectories == (*config.trajectories, told["dataset"]["digest"])
    assert (again.scores, again.curation.imitate) == ((told["scores"]["digest"],), "success")


@pytest.mark.parametrize(
    ("rewards", "method", "least"), [([0, 1, 0], "sft", 1), ([0.2, 0.5, 0.9], "sft", 0.5), ([1, -1, 1], "kto", None)]
)
def test_scores_that_say_no_success_say_what_is_learnt(home, tmp_path, rewards, method, least):
    """A night on chats with rewards ended with code 65: it imitated successes, and a number is none."""
    chats = [CHAT | {"session_id": str(number), "reward": reward} for number, reward in enumerate(rewards)]
    (tmp_path / "a.jsonl").write_text("".join(f"{json.dumps(chat)}\n" for chat in chats))
    night = tmp_path / "night.yaml"
    assert _outcome(["ingest", str(tmp_path / "a.jsonl"), "--output", str(night)]) == 0
    config = load_config(night)
    assert (config.train.method, config.curation.filters.min_score) == (method, least)


def test_calls_are_replayed_where_half_of_the_chats_have_some(home, tmp_path):
    """`init` set it and `ingest --output` did not, so that its verdict was about likelihood, which promotes nothing."""
    call = {"id": "c1", "type": "function", "function": {"name": "stock", "arguments": '{"item": "mug"}'}}
    asked = [{"role": "user", "content": "Mugs?"}, {"role": "assistant", "content": None, "tool_calls": [call]}]
    calls = [*asked, {"role": "tool", "tool_call_id": "c1", "content": "3"}, {"role": "assistant", "content": "Three."}]
    measures = []
    for number, messages in enumerate([calls, CHAT["messages"], CHAT["messages"]]):  # 1 of 1, 1 of 2, 1 of 3
        with (tmp_path / "a.jsonl").open("a") as file:
            file.write(json.dumps({"messages": messages, "session_id": str(number)}) + "\n")
        words = ["ingest", str(tmp_path / "a.jsonl"), "--output", str(tmp_path / "night.yaml"), "--json"]
        assert CliRunner().invoke(app, words).exit_code == 0
        measures.append(load_config(tmp_path / "night.yaml").measure)
    assert measures == ["tool calls", "tool calls", "likelihood"]


@pytest.mark.parametrize(("users", "share", "warned"), [(20, 0.5, True), (160, 0.5, False), (400, 0.2, False), (2000, 0.1, False)])
def test_what_is_held_out_is_enough_for_a_verdict(home, tmp_path, users, share, warned):
    """A tenth was, so that under 500 users or sessions no night could do anything but hold, and nothing said so."""
    chats = [CHAT | {"session_id": str(number), "user": f"user-{number % users}"} for number in range(users)]
    (tmp_path / "a.jsonl").write_text("".join(f"{json.dumps(chat)}\n" for chat in chats))
    night = tmp_path / "night.yaml"
    done = CliRunner().invoke(app, ["ingest", str(tmp_path / "a.jsonl"), "--output", str(night), "--json"])
    assert load_config(night).evaluation.heldout_share == share
    warnings = json.loads(done.stdout)["warnings"]
    assert warned == any("20 users, sessions or prompts are too few for a verdict" in warning for warning in warnings)
    assert warned == ("# 20 users, sessions or prompts are too few" in night.read_text())


def test_preference_pairs_alone_are_for_dpo(home, tmp_path):
    pair = {"prompt": [{"role": "user", "content": "a"}]}
    pair |= {side: [{"role": "assistant", "content": side}] for side in ("chosen", "rejected")}
    (tmp_path / "pairs.jsonl").write_text(json.dumps(pair) + "\n")
    night = tmp_path / "night.yaml"
    told = json.loads(CliRunner().invoke(app, ["ingest", str(tmp_path / "pairs.jsonl"), "--output", str(night), "--json"]).output)
    config = load_config(night)
    assert (config.train.method, config.preferences) == ("dpo", (told["preferences"]["digest"],))
    assert config.measure == "preference accuracy"


def test_a_config_of_ones_own_is_not_overwritten(file, tmp_path, capsys):
    night = tmp_path / "night.yaml"
    night.write_text("seed: 1\n")
    assert _outcome(["ingest", str(file), "--output", str(night), "--json"]) == 2
    assert json.loads(capsys.readouterr().out)["where"] == str(night)
    assert night.read_text() == "seed: 1\n"


def test_folders_and_archives_are_read_again_once_changed(home, tmp_path):
    logs = tmp_path / "logs"
    events = logs / "talk" / "events"
    events.mkdir(parents=True)
    for number, role in enumerate(("user", "assistant")):
        message = {"role": role, "content": [{"type": "text", "text": role}]}
        event = {"kind": "MessageEvent", "source": "x", "timestamp": "t", "llm_message": message}
        (events / f"event-{number:05}-a.json").write_text(json.dumps(event))
    sample = {"id": 1, "epoch": 1, "input": "q", "target": "a", "messages": CHAT["messages"]}
    with zipfile.ZipFile(logs / "log.eval", "w") as archive:
        archive.writestr("samples/1_epoch_1.json", json.dumps(sample))
    first, again = (json.loads(CliRunner().invoke(app, ["ingest", str(logs), "--json"]).output) for _ in range(2))
    assert (first["formats"], first["trajectories"]) == ({"openhands": 2, "inspect-sample": 1}, 2)
    assert (again["trajectories"], again["skipped"], again["repeated"]) == (0, 1, 1)
