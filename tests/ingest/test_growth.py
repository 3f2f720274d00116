"""Reading again: only what is new, nothing lost, nothing twice."""

import os
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from clawpipe.core.store.files import exclusive
from clawpipe.data.ingest.intake.options import Options
from clawpipe.data.ingest.intake.run import ingest
from clawpipe.errors import DataError
from clawpipe.start.proposing.report import ingest_report


def said(rows):
    return sorted(row["messages"][-1]["content"] for row in rows)


def test_nothing_new_is_nothing_read(desk, make):
    desk.write("a.jsonl", make.lines(make.chat("a", "1")))
    first, again = desk.ingest_report(), desk.ingest_report()
    assert (again["files"], again["new_files"], again["skipped"], again["lines"]) == (1, 0, 1, 0)
    assert (again["dataset"]["rows"], again["parts"]) == (0, first["parts"])


def test_appended_lines_are_read_from_the_old_end(desk, make):
    desk.write("a.jsonl", make.lines(make.chat("a", "1"), make.chat("a", "2")))
    desk.ingest()
    desk.append("a.jsonl", make.lines(make.chat("a", "3")))
    desk.write("b.jsonl", make.lines(make.chat("a", "4")))
    done = desk.ingest()
    assert (done.reading.lines, said(desk.rows(done)), said(desk.stored())) == (2, ["3", "4"], ["1", "2", "3", "4"])
    appended = next(row for row in desk.rows(done) if row["messages"][-1]["content"] == "3")
    assert (appended["origin"]["line"], appended["rollout_index"]) == (3, 2)


def test_a_line_is_read_once_it_is_complete(desk, make):
    whole, half = make.lines(make.chat("a", "1")), make.lines(make.chat("a", "2"))
    desk.write("a.jsonl", whole + half[:20])
    assert desk.ingest_report()["quarantined"] == {"not JSON": 1}
    desk.append("a.jsonl", half[20:])
    report = desk.ingest_report()
    assert (report["lines"], report["accepted"], said(desk.stored())) == (1, 1, ["1", "2"])


@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
def test_a_line_that_only_lacks_its_end_is_read_once(desk, make, end):
    desk.write("a.jsonl", make.lines(make.chat("a", "1"))[:-1])
    assert desk.ingest_report()["accepted"] == 1
    desk.append("a.jsonl", end)
    assert desk.ingest_report()["lines"] == 0
    desk.append("a.jsonl", make.lines(make.chat("a", "2")))
    report = desk.ingest_report()
    assert (report["lines"], report["accepted"], said(desk.stored())) == (1, 1, ["1", "2"])


def test_a_rewritten_file_is_read_whole_and_stored_once(desk, make):
    desk.write("a.jsonl", make.lines(make.chat("a", "1"), make.chat("a", "2")))
    desk.ingest()
    desk.write("a.jsonl", make.lines(make.chat("a", "2"), make.chat("a", "3"), make.chat("a", "4")))
    report = desk.ingest_report()
    assert (report["lines"], report["repeated"], said(desk.stored())) == (3, 1, ["1", "2", "3", "4"])


def test_a_copy_in_another_file_is_the_same_trajectory(desk, make):
    desk.write("a.jsonl", make.lines(make.chat("a", "1")))
    desk.ingest()
    desk.write("moved.jsonl", make.lines(make.chat("a", "1")))
    assert desk.ingest_report()["repeated"] == 1
    assert said(desk.stored()) == ["1"]


def test_what_two_users_say_alike_is_two_trajectories(desk, make):
    desk.write("ann.jsonl", make.lines(make.chat("hi", "hello", user="ann")))
    desk.write("bob.jsonl", make.lines(make.chat("hi", "hello", user="bob")))
    assert sorted(row["user_id"] for row in desk.rows(desk.ingest())) == ["ann", "bob"]
    desk.write("bob.jsonl", make.lines(make.chat("who?", "me")))
    [cora], [dora] = ([row for row in desk.rows(desk.ingest(user=user)) if row["user_id"] == user] for user in ("cora", "dora"))
    assert cora["trajectory_id"] != dora["trajectory_id"]  # whoever forgets the one keeps the other


def test_equal_lines_are_stored_once(desk, make):
    """In one file, in its new part and in another one: a retry taught twice."""
    line = make.lines(make.chat("a", "1"))
    desk.write("a.jsonl", line * 2)
    report = desk.ingest_report()
    assert (report["lines"], report["trajectories"], report["repeated"]) == (2, 1, 1)
    desk.append("a.jsonl", line + make.lines(make.chat("a", "2")))
    assert desk.ingest_report()["repeated"] == 1
    desk.write("b.jsonl", line * 3)
    assert desk.ingest_report()["repeated"] == 3
    assert said(desk.stored()) == ["1", "2"]


def test_a_request_that_was_tried_again_is_stored_once(desk, make):
    """Ids and times differ, the answer does not."""
    answer = {"choices": [{"message": {"role": "assistant", "content": "4"}, "finish_reason": "stop"}]}
    asked = {"messages": [{"role": "user", "content": "2+2?"}], "user": "ann"}
    logs = [{"request": asked, "response": answer | {"id": f"r{number}", "created": number}} for number in range(2)]
    other = {"request": asked, "response": {"choices": [{"message": {"content": "4"}, "finish_reason": "length"}]}}
    desk.write("a.jsonl", make.lines(*logs, other))
    report = desk.ingest_report()
    assert (report["trajectories"], report["repeated"]) == (2, 1)


def test_equal_answers_with_other_rewards_are_attempts(desk, make):
    rows = [make.chat("a", "1") | {"reward": reward} for reward in (1.0, 0.0, 1.0)]
    desk.write("a.jsonl", make.lines(*rows))
    report = desk.ingest_report()
    assert (report["trajectories"], report["repeated"]) == (2, 1)


def test_equal_answers_to_one_request_are_attempts(desk, make):
    choices = [{"index": number, "message": {"content": "4"}, "finish_reason": "stop"} for number in range(3)]
    desk.write(
        "a.jsonl", make.lines({"request": {"messages": [{"role": "user", "content": "2+2?"}]}, "response": {"choices": choices}})
    )
    assert desk.ingest_report()["trajectories"] == 3


def test_other_options_are_another_log(desk, make):
    desk.write("a.jsonl", make.lines(make.chat("a", "1")))
    desk.ingest()
    assert desk.ingest_report(user="me")["trajectories"] == 1


def test_a_lost_dataset_is_made_again(desk, make):
    desk.write("a.jsonl", make.lines(make.chat("a", "1")))
    [ref] = desk.ingest().datasets.values()
    directory = desk.store.path(ref)
    directory.rename(desk.folder.parent / "gone")
    assert desk.ingest().datasets["trajectories"].digest == ref.digest
    assert directory.exists()


def test_a_damaged_log_is_told(desk, make):
    desk.write("a.jsonl", make.lines(make.chat("a", "1")))
    done = desk.ingest()
    Path(done.log).write_text("{")
    with pytest.raises(DataError, match="log of what was ingested is damaged"):
        desk.ingest()


@pytest.mark.slow
@pytest.mark.usefixtures("quick_scripts")
def test_runs_that_were_killed_lose_and_repeat_nothing(desk, make):
    desk.write("a.jsonl", make.lines(make.chat("a", "1"), make.chat("a", "2")))
    desk.ingest()
    desk.append("a.jsonl", make.lines(make.chat("a", "2"), make.chat("a", "3")))
    command = [sys.executable, "-m", "clawpipe.cli.main", "ingest", str(desk.folder)]
    for point in ("store.before_rename/trajectories", "ingest.before_memory", "write_atomic.before_rename"):
        killed = subprocess.run(command, env=os.environ | {"CLAWPIPE_KILL_AT": point}, capture_output=True, timeout=60)
        assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert said(desk.stored()) == ["1", "2"]
    done = desk.ingest()
    assert (said(desk.rows(done)), said(desk.stored())) == (["3"], ["1", "2", "3"])  # an equal line is stored once
    assert not list((desk.home.root / "ingest").glob("*.work"))


def _exported(*said: str, session: str = "s", **fields) -> dict:
    """A session as Hermes exports it."""
    messages = [{"role": role, "content": text} for role, text in zip(["user", "assistant"] * len(said), said, strict=False)]
    return {"id": session, "source": "cli", "started_at": 1.5, "user_id": "ann", "messages": messages} | fields


SAID = ("My mail is ann@example.org, write to it.", "Done.", "And now?", "Now too.", "Bye.", "Bye, Ann.")


def test_only_new_turns_of_a_reexported_session_are_trained_on(desk, make):
    desk.write("day1.jsonl", make.lines(_exported(*SAID[:2]), _exported(*SAID[:2], session="other")))
    assert [row["kinds"] for row in desk.rows(desk.ingest())] == [["main"], ["main"]]
    desk.write("day2.jsonl", make.lines(_exported(*SAID[:5]), _exported(*SAID[:4], user_id="ben")))
    assert [row["kinds"] for row in desk.rows(desk.ingest())] == [["side", "main"], ["main", "main"]]
    desk.write("day3.jsonl", make.lines(_exported("Else?", "No.", *SAID[2:]), _exported(*SAID)))
    assert [row["kinds"] for row in desk.rows(desk.ingest())] == [["main"] * 3, ["side", "side", "main"]]


def test_sessions_in_one_file_and_their_copies(desk, make):
    desk.write("all.jsonl", make.lines(_exported(*SAID[:2]), _exported(*SAID[:2]), _exported(*SAID[:4]), _exported(*SAID[:4])))
    kinds = [row["kinds"] for row in desk.rows(desk.ingest())]
    assert kinds == [["main"], ["side", "main"]]


def test_a_file_of_turns_that_is_written_anew_with_more(desk, make):
    turns = [make.turn("s", number, *SAID[: 2 * number + 2]) for number in range(3)]
    file = desk.write("log.jsonl", make.lines(*turns[:2]))
    assert [row["kinds"] for row in desk.rows(desk.ingest())] == [["main", "main"]]
    file.write_bytes(b"\n" + make.lines(*turns))
    assert [row["kinds"] for row in desk.rows(desk.ingest())] == [["side", "side", "main"]]


def test_a_line_is_rejected_once_unless_its_bytes_change(desk, make):
    desk.write("a.jsonl", make.lines(make.chat("a", "1")) + b"no json\n\n\n")
    desk.ingest()
    again = ingest_report(desk.home, ingest(desk.home, [str(desk.folder)], Options(), again=True))
    assert again["quarantined"] == {"blank line": 2, "not JSON": 1}
    assert "quarantine" not in again
    desk.write("a.jsonl", make.lines(make.chat("a", "1")) + b"nor this\n")
    desk.ingest()
    assert [row["row"] for row in desk.stored("quarantine")] == ["no json", "", "nor this"]


def test_again_reads_files_from_the_start_without_repeats(desk, make):
    desk.write("a.jsonl", make.lines(make.chat("a", "1"), make.chat("a", "2")) + b"no json\n")
    desk.ingest()
    done = ingest(desk.home, [str(desk.folder)], Options(), again=True)
    assert (done.reading.lines, done.counts["repeated"], done.refused) == (3, 2, {"not JSON": 1})
    assert said(desk.stored()) == ["1", "2"]
    assert desk.ingest_report()["lines"] == 0  # it is known again


def test_of_two_at_once_the_second_waits_and_says_for_whom(desk, make):
    desk.write("a.jsonl", make.lines(make.chat("a", "1")))
    waiting = threading.Event()
    report: list[str] = []

    def wait(who: str) -> None:
        report.append(who)
        waiting.set()

    with ThreadPoolExecutor(1) as pool:
        with exclusive(desk.home.locks / "ingest.lock", "a test"):
            second = pool.submit(ingest, desk.home, [str(desk.folder)], Options(), waits=wait)
            assert waiting.wait(60)
            assert not second.done()
        assert second.result(60).accepted == 1
    assert f"process {os.getpid()}" in report[0]


def test_old_turns_of_a_grown_session_file_are_context(desk, make):
    """Its file has a line a message: what is new goes on from what was read."""
    said = [{"role": role, "content": text} for role, text in (("user", "q"), ("assistant", "a"))]
    desk.write("s1.jsonl", make.lines(*said))
    assert [row["kinds"] for row in desk.rows(desk.ingest())] == [["main"]]
    assert desk.ingest().reading.lines == 0
    desk.append("s1.jsonl", make.lines({"role": "user", "content": "more"}, {"role": "assistant", "content": "b"}))
    done = desk.ingest()
    [row] = desk.rows(done)
    assert ([message["content"] for message in row["messages"]], row["kinds"]) == (["q", "a", "more", "b"], ["side", "main"])
    assert (row["session_id"], done.reading.lines, done.accepted) == ("agent/s1", 4, 4)
    desk.write("s1.jsonl", make.lines(*said, {"role": "user", "content": "more"}, {"role": "assistant", "content": "b"}))
    assert desk.ingest().counts["repeated"] == 1
