"""What was forgotten is not read in again, whatever file it stands in."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from clawpipe.cli.main import _outcome as main
from clawpipe.core.store.home import Home
from clawpipe.data.forgotten.subject import Subject
from clawpipe.data.forgotten.tombstones import REASON, Tombstone, Tombstones
from clawpipe.data.ingest.intake.options import Options
from clawpipe.data.ingest.intake.run import ingest
from clawpipe.record.removal.forget import forget

PREAMBLE = "You are a helpful agent that lives in a terminal."
SECRET = "Brontosaurus-Quux-77 is the name of the cat"


def line(session: str, user: str, text: str) -> str:
    messages = [{"role": "user", "content": text}, {"role": "assistant", "content": f"Noted: {text}"}]
    return json.dumps({"messages": messages, "session_id": session, "user": user}) + "\n"


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "log.jsonl"
    path.write_text(
        line("s1", "ann", SECRET)
        + line("s2", "ben", "What is the time?")
        + line("s3", "ann", f"Again: {SECRET}")
        + '{"session_id": "s1", "messages": [], "note": "' + SECRET + '"}\n'
        + '{"session_id": "s1", "cut": "' + SECRET
    )  # fmt: skip
    return path


def texts(home) -> str:
    """Everything that the datasets below the home say."""
    return json.dumps([pq.read_table(file).to_pylist() for file in sorted(home.store.rglob("*.parquet"))])


def test_a_forgotten_line_is_rejected_whoever_reads_it_again(home, log, tmp_path):
    first = ingest(home, [str(log)], Options())
    assert first.datasets["trajectories"].rows == 3
    assert SECRET in texts(home)
    [result] = forget(home, Subject(user="ann"))
    assert (result.trajectories, result.still_held) == (2, [])
    assert SECRET not in texts(home)
    again = ingest(home, [str(log)], Options())
    assert again.datasets["trajectories"].rows == 0
    copy = tmp_path / "copy.jsonl"
    copy.write_text(log.read_text())
    other = ingest(home, [str(copy)], Options(policy_version="p1"))  # a log of its own, which knows nothing yet
    assert other.datasets["trajectories"].rows == 1
    assert other.refused[REASON] == 2
    assert other.accepted + other.refused.total() == other.reading.lines == 5
    assert SECRET not in texts(home)


def test_what_a_person_adds_later_is_forgotten_as_well(home, log):
    ingest(home, [str(log)], Options())
    forget(home, Subject(user="ann"))
    with log.open("a") as file:
        file.write("\n" + line("s9", "ann", f"Later: {SECRET}") + line("s2", "ben", "And the date?"))
    grown = ingest(home, [str(log)], Options())
    assert grown.refused[REASON] == 1
    assert grown.datasets["trajectories"].rows == 1
    assert SECRET not in texts(home)


def test_pairs_that_name_somebody_are_forgotten_with_them(home, tmp_path):
    def pair(asked: str, **whose: str) -> str:
        return json.dumps({"prompt": asked, "chosen": "It is.", "rejected": "It is not."} | whose) + "\n"

    file = tmp_path / "pairs.jsonl"
    file.write_text(
        pair(SECRET, session_id="s1", user_id="ann") + pair("Is it far?", session_id="s1", user_id="ben") + pair("Is it?")
    )
    assert ingest(home, [str(file)], Options()).datasets["preference_pairs"].rows == 3
    [result] = forget(home, Subject(user="ann"))
    assert [(one.name, one.rows, one.of) for one in result.datasets] == [("preference_pairs", 1, 3)]
    assert SECRET not in texts(home)
    assert "Is it far?" in texts(home)
    again = ingest(home, [str(file)], Options(user="dora"))  # a log of its own
    assert (again.refused[REASON], again.datasets["preference_pairs"].rows) == (1, 2)
    [result] = forget(home, Subject(session="s1"))
    assert "Is it far?" not in texts(home)


def exported(session: str, *said: str, **fields: str) -> str:
    """A Hermes session as its agent exports one."""
    messages = [{"role": role, "content": text} for role, text in zip(["user", "assistant"] * len(said), said, strict=False)]
    facts = {"id": session, "source": "cli", "started_at": 1.5, "system_prompt": PREAMBLE, "messages": messages}
    return json.dumps(facts | fields) + "\n"


def test_sessions_that_go_on_from_one_go_along_with_it(home, tmp_path, capsys):
    parent, child, last = "20260101_101500_ab12cd", "20260102_090000_ef34ab", "20260103_090000_cd56ef"
    said = (SECRET, "Noted, the cat.")
    text = exported(parent, *said) + exported(child, *said, "And now?", "Now it sleeps.", parent_session_id=parent)
    text += exported(last, *said, "Still?", "Still.", parent_session_id=child) + exported("other", "What is the time?", "Noon.")
    (tmp_path / "sessions.jsonl").write_text(text)
    assert ingest(home, [str(tmp_path / "sessions.jsonl")], Options()).datasets["trajectories"].rows == 4
    [result] = forget(home, Subject(session=parent))
    assert (result.sessions, result.trajectories, result.still_held) == ([child, last], 3, [])
    assert not any(one in texts(home) for one in (SECRET, parent, child))
    again = ingest(home, [str(tmp_path / "sessions.jsonl")], Options(user="dora"))  # a log of its own
    assert (again.refused[REASON], again.datasets["trajectories"].rows) == (3, 1)
    (tmp_path / "late.jsonl").write_text(exported("late", *said, "Well?", "Well.", parent_session_id=parent))
    assert ingest(home, [str(tmp_path / "late.jsonl")], Options()).refused == {REASON: 1}
    assert main(["trace", "--session", "other"]) == main(["forget", "--session", child]) == 0
    assert f"sessions that go on from {child}" not in capsys.readouterr().out


def test_rows_that_repeat_what_was_forgotten_are_listed(home, tmp_path):
    answer = "It is a very long answer that anybody may get."
    own = exported("s1", f"Hello.\n{SECRET}", answer) + exported("s2", f"About s0:\n{SECRET}\nSo?", answer)
    other = exported("s3", "What is the time in Greenland today?", answer, user_id="ben")
    asked = exported("s4", "What is the time in Greenland today?", answer, user_id="cora") + exported("s5", "Bye", answer)
    for name, text in (("own", own), ("other", other), ("asked", asked)):
        (tmp_path / f"{name}.jsonl").write_text(text)
        ingest(home, [str(tmp_path / f"{name}.jsonl")], Options())
    [result] = forget(home, Subject(session="s4"))
    assert result.still_held == []  # the system prompt, the answer and a question that another user asked are not hers alone
    [result] = forget(home, Subject(session="s1"))
    [left] = result.still_held
    assert SECRET in json.dumps(pq.read_table(left).to_pylist())
    [result] = forget(home, Subject(session="s0"))  # no session, but its id stands in a text
    assert result.still_held == [left]


def test_the_user_of_the_command_line_counts(home, tmp_path):
    file = tmp_path / "log.jsonl"
    file.write_text(json.dumps({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}) + "\n")
    forget(home, Subject(user="cora"))
    assert ingest(home, [str(file)], Options(user="cora")).refused[REASON] == 1
    assert ingest(home, [str(file)], Options(user="dora")).refused[REASON] == 0


def test_rejected_lines_of_a_users_file_are_forgotten_with_it(home, tmp_path):
    said = json.dumps({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}) + "\n"
    (tmp_path / "chats_cora-1.jsonl").write_text(said + SECRET)
    (tmp_path / "log.jsonl").write_text(said.replace("b", "c") + SECRET + "\n")
    (tmp_path / "other.jsonl").write_text(said.replace("b", "d") + "broken\n")
    ingest(home, [str(tmp_path / "*[g1].jsonl")], Options(user="cora"))
    ingest(home, [str(tmp_path / "other.jsonl")], Options(user="dora"))
    forget(home, Subject(user="cora"))
    assert SECRET not in texts(home)
    assert "broken" in texts(home)
    assert "cora" not in texts(home) + "".join(file.read_text() for file in home.root.rglob("*.json"))
    (tmp_path / "log.jsonl").write_text(SECRET + "\n")
    assert ingest(home, [str(tmp_path / "log.jsonl")], Options(user="cora")).refused == {"not JSON": 1}
    assert SECRET not in texts(home)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('{"user": "ann"', True),
        ('x"ann"x', True),
        ('{"user": "\\u0061nn"}', True),
        ('{"user": "anne"}', False),
        ("ann", False),
        ("", False),
    ],
)
def test_ids_are_recognised_in_lines_that_are_no_json(text, found):
    empty = Tombstones()
    stone = Tombstone(kind="user", digest=empty.digest("user", "ann"), date="2031-05-04", trajectories=1, replaced={}, models=())
    assert empty.with_stone(stone).mentioned_in(text) is found
    assert not empty.mentioned_in(text)


def batch(tmp_path: Path) -> Path:
    """Rows of a batch: they name neither session nor user."""
    path = tmp_path / "batch.jsonl"
    said = ["What is the time?", f"Write this down: {SECRET}", 'Say "one\ntwo" please.']
    rows = [{"messages": [{"role": "user", "content": one}, {"role": "assistant", "content": "Noted."}]} for one in said]
    call = {"id": "1", "type": "function", "function": {"name": "note", "arguments": json.dumps({"text": SECRET})}}
    rows.append({"messages": [rows[0]["messages"][0], {"role": "assistant", "content": "", "tool_calls": [call]}]})
    pair = {"prompt": f"About {SECRET}", "chosen": "It is.", "rejected": "It is not."}
    path.write_text("".join(json.dumps(row) + "\n" for row in [*rows, pair]))
    return path


def test_a_row_without_user_is_forgotten_by_its_id(home, tmp_path):
    path = batch(tmp_path)
    ref = ingest(home, [str(path)], Options()).datasets["trajectories"]
    rows = [row for file in (home.store / "trajectories" / ref.digest).glob("*.parquet") for row in pq.read_table(file).to_pylist()]
    [gone] = [row["trajectory_id"] for row in rows if "Write this down" in row["messages"][0]["content"]]
    [result] = forget(home, Subject(trajectory=gone))
    assert (result.trajectories, [(one.name, one.rows) for one in result.datasets]) == (1, [("trajectories", 1)])
    assert "Write this down" not in texts(home)
    again = ingest(home, [str(path)], Options(policy_version="p1"))  # a log of its own
    assert (again.refused, again.datasets["trajectories"].rows) == ({REASON: 1}, 3)
    assert "Write this down" not in texts(home)


def test_a_preference_pair_is_forgotten_by_its_id(home, tmp_path):
    ref = ingest(home, [str(batch(tmp_path))], Options()).datasets["preference_pairs"]
    [file] = (home.store / "preference_pairs" / ref.digest).glob("*.parquet")
    [result] = forget(home, Subject(trajectory=pq.read_table(file)["pair_id"][0].as_py()))
    assert [(one.name, one.rows, one.of) for one in result.datasets] == [("preference_pairs", 1, 1)]


@pytest.mark.parametrize("relative", [True, False])
def test_a_file_is_forgotten_and_its_cleaned_version_read(home, tmp_path, monkeypatch, relative):
    path, other = batch(tmp_path), tmp_path / "other.jsonl"
    other.write_text(line("s2", "ben", "And the date?") + "no json\n")
    ingest(home, [str(path), str(other)], Options())
    monkeypatch.chdir(tmp_path)
    [result] = forget(home, Subject(source=path.name if relative else str(path)))
    assert result.trajectories == 4
    assert "Write this down" not in texts(home)
    assert "And the date?" in texts(home)
    path.write_text(path.read_text() + line("s7", "dora", "Is it new?"))
    again = ingest(home, [str(path)], Options())
    assert (again.refused, again.datasets["trajectories"].rows) == ({REASON: 5}, 1)


def test_pairs_prompts_and_rejects_of_a_file_are_forgotten(home, tmp_path):
    path, other = tmp_path / "a.jsonl", tmp_path / "b.jsonl"
    pair, prompt = {"prompt": "Hers?", "chosen": "Yes.", "rejected": "No."}, {"prompt": "Whose is it, hers?"}
    path.write_text("\n\nhers, and no json\n" + json.dumps(pair) + "\n" + json.dumps(prompt) + "\n")
    other.write_text(json.dumps({"prompt": "His?", "chosen": "Yes.", "rejected": "No."}) + "\n" + json.dumps({"prompt": "Whose?"}))
    ingest(home, [str(path), str(other)], Options())
    [result] = forget(home, Subject(source=str(path)))
    assert {one.name: (one.rows, one.of) for one in result.datasets} == {
        "preference_pairs": (1, 2),
        "task_items": (1, 2),
        "quarantine": (2, 2),
    }
    assert "hers" not in texts(home).lower()
    assert "His?" in texts(home)
    again = ingest(home, [str(path)], Options(policy_version="p1"))  # a log of its own
    assert again.refused == {REASON: 2, "blank line": 2, "not JSON": 1}


def test_of_a_prompt_that_another_file_answers_the_answers_stay(home, tmp_path):
    path, other = tmp_path / "prompts.jsonl", tmp_path / "chats.jsonl"
    path.write_text(json.dumps({"prompt": "And the date?"}))
    other.write_text(line("s2", "ben", "And the date?"))
    ingest(home, [str(path), str(other)], Options())
    [result] = forget(home, Subject(source=str(path)))
    assert [(one.name, one.rows) for one in result.datasets] == [("task_items", 1)]
    assert ingest(home, [str(path)], Options(policy_version="p1")).refused == {REASON: 1}


def test_a_url_is_forgotten_by_the_name_that_rows_have():
    assert Subject(source="https://ann:hush@host/a.jsonl?token=hush").id == "https://host/a.jsonl"


def test_rows_with_a_text_are_forgotten_also_calls_and_pairs(home, tmp_path):
    path = batch(tmp_path)
    ingest(home, [str(path)], Options())
    [result] = forget(home, Subject(text=SECRET))
    assert sorted((one.name, one.rows, one.of) for one in result.datasets) == [("preference_pairs", 1, 1), ("trajectories", 2, 4)]
    assert SECRET not in texts(home)
    assert result.still_held == []
    [result] = forget(home, Subject(text='"one\ntwo"'))  # as JSON writes it, it looks otherwise
    assert result.trajectories == 1
    again = ingest(home, [str(path)], Options(policy_version="p1"))  # a log of its own
    assert (again.refused, again.datasets["trajectories"].rows) == ({REASON: 4}, 1)
    assert SECRET not in texts(home)


def test_a_row_that_is_forgotten_before_it_is_read_is_rejected(home, tmp_path):
    path = batch(tmp_path)
    ingest(home, [str(path)], Options())
    [name, *_] = pq.read_table(next(home.store.glob("trajectories/*/*.parquet")))["trajectory_id"].to_pylist()
    elsewhere = Home(tmp_path / "elsewhere")
    forget(elsewhere, Subject(trajectory=name))
    assert ingest(elsewhere, [str(path)], Options()).refused[REASON] == 1


def test_tombstones_hold_neither_text_nor_ids(home, tmp_path):
    ingest(home, [str(batch(tmp_path))], Options())
    forget(home, Subject(text=SECRET))
    listed = (home.root / "forgotten.json").read_text()
    assert SECRET not in listed
    assert json.loads(listed)["stones"][0]["kind"] == "text"


def test_the_command_line_forgets_rows_by_file_and_text(home, tmp_path, capsys):
    path = batch(tmp_path)
    ingest(home, [str(path)], Options())
    assert main(["forget", "--text", SECRET, "--dry-run"]) == 0
    assert "2 trajectories, 3 rows in 2 datasets" in capsys.readouterr().out
    assert main(["forget", "--source", str(path)]) == 0
    assert "Write this down" not in texts(home)
    assert main(["forget", "--source", str(tmp_path / "nothing.jsonl")]) == 0
    assert "is it right?\nLater data of it are not rejected" in capsys.readouterr().out
    assert main(["forget", "--text", "short"]) == 2
    assert "a text of fewer than 8 characters is anybody's" in capsys.readouterr().err
