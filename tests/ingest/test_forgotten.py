"""What was forgotten does not come back."""

from clawpipe.data.forgotten.tombstones import Tombstone, Tombstones, write_tombstones


def forget(home, kind, identity):
    stones = Tombstones()
    stone = Tombstone(kind=kind, digest=stones.digest(kind, identity), date="2030-01-01", trajectories=1, replaced={}, models=())
    write_tombstones(home, stones.with_stone(stone))


def test_rows_of_a_forgotten_session_leave_a_count_alone(desk, make):
    forget(desk.home, "session", "s-1")
    turns = [make.turn("s-1", 1, "a?", "never"), make.turn("s-1", 2, "a?", "never", "c?", "d")]
    desk.write("a.jsonl", make.lines(make.chat("a", "never", session_id="s-1"), make.chat("a", "b", session_id="s-2"), *turns))
    desk.append("a.jsonl", b'{"session_id": "s-1", "text": "never"}\n')
    report = desk.ingest_report()
    assert (report["lines"], report["accepted"]) == (5, 1)
    assert report["quarantined"] == {"forgotten": 3, "no known format": 1}
    assert [row["session_id"] for row in desk.stored()] == ["s-2"]
    assert desk.stored("quarantine")[0]["row"] == ""


def test_a_user_from_the_command_line_can_be_forgotten(desk, make):
    forget(desk.home, "user", "ann")
    desk.write("a.jsonl", make.lines(make.chat("a", "b")))
    assert desk.ingest_report(user="ann")["quarantined"] == {"forgotten": 1}


def test_prompts_of_a_forgotten_user_do_not_come_back(desk, make):
    forget(desk.home, "user", "ann")
    whose = [{"user_id": "ann"}, {"user_id": "ben", "session_id": 7}, {}]
    prompts = [{"prompt": f"What is {number}?"} | who for number, who in enumerate(whose)]
    rows = [prompt | more for prompt in prompts for more in ({}, {"completion": "that"})]
    desk.write("a.jsonl", make.lines(*rows))
    report = desk.ingest_report()
    assert (report["accepted"], report["quarantined"]) == (4, {"forgotten": 2})
    assert [(row["user_id"], row["session_id"]) for row in desk.stored("task_items")] == [("ben", "7"), (None, None)]
    assert [row["user_id"] for row in desk.stored()] == ["ben", None]
