"""A file that is one JSON array, written anew with more in it."""

import json


def test_only_new_elements_are_read(desk, make):
    chats = [make.chat(f"q{number}", "a") for number in range(4)]
    for known in (2, 4):
        desk.write("a.json", json.dumps(chats[:known], indent=1).encode())
        report = desk.ingest_report()
        assert (report["lines"], report["accepted"], report["repeated"]) == (2, 2, 0)
    assert [row["origin"]["line"] for row in desk.stored()] == [1, 2, 3, 4]


def test_half_an_array_is_refused_and_read_once_it_is_whole(desk, make):
    whole = json.dumps([make.chat(f"q{number}", "a") for number in range(3)], indent=1).encode()
    desk.write("a.json", whole[: len(whole) // 2])
    assert desk.ingest_report()["accepted"] == 0
    desk.write("a.json", whole)
    assert desk.ingest_report()["accepted"] == 3
