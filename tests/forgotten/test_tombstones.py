"""Tombstones recognise what was forgotten, in every spelling, and name nobody."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clawpipe.core.store.home import Home
from clawpipe.data.forgotten.subject import Subject, pattern_of, session_name, session_of
from clawpipe.data.forgotten.tombstones import SeenBy, Tombstone, Tombstones, read_tombstones, tombstones_path, write_tombstones
from clawpipe.errors import ConfigError, DataError

IDS = st.text(st.characters(exclude_characters="\x1f", exclude_categories=["Cs"]), min_size=1, max_size=12)


def stone_of(stones: Tombstones, subject: Subject, **more) -> Tombstone:
    given = {"date": "2026-11-26", "trajectories": 1, "replaced": {}, "models": (), "key": subject.key} | more
    return Tombstone(kind=subject.kind, digest=stones.digest(subject.kind, subject.id), **given)


def forgotten(*subjects: Subject) -> Tombstones:
    stones = Tombstones()
    for subject in subjects:
        stones = stones.with_stone(stone_of(stones, subject))
    return stones


@given(IDS, IDS)
def test_a_forgotten_user_is_recognised_and_nobody_else(ann, other):
    stones = forgotten(Subject(user=ann))
    assert stones.covers("any session", ann)
    assert stones.covers(None, other) == (other == ann)
    assert not stones.covers(ann, None)


def test_a_session_of_one_key_is_not_that_of_another():
    stones = forgotten(Subject(session="s", key="alice"))
    assert stones.covers("s", None, "alice")
    assert not stones.covers("s", None, "bob")
    assert session_of(session_name("alice", "s")) == "s"


@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=4, max_size=12))
def test_an_id_is_found_in_json_however_it_is_spelled(ann):
    stones = forgotten(Subject(user=ann))
    for ascii_ in (True, False):
        line = json.dumps({"user": ann, "text": "hello"}, ensure_ascii=ascii_)
        assert stones.mentioned_in(line)
        assert stones.mentioned_in(line[:-4])  # truncated
    assert not stones.mentioned_in('{"user": "somebody else"}')


def test_a_stone_is_found_however_many_were_looked_up_before():
    stones = forgotten(Subject(user="ann"))
    assert (stones.covers("s", None), stones.covers_row("row")) == (False, False)
    ben = stone_of(stones, Subject(user="ben"), sessions=(stones.digest("session", "s"),), rows=(stones.digest("row", "row"),))
    more = stones.with_stone(ben)
    assert (more.covers("s", None), more.covers_row("row"), more.covers(None, "ann")) == (True, True, True)
    assert not more.covers("s", "carl")  # a user's session takes along what names nobody


def test_a_name_is_a_whole_word():
    found = re.compile(pattern_of(["ann"]))
    assert found.search("by ann.")
    assert not found.search("by anna")
    assert not found.search("ann-2026")
    assert re.search(pattern_of(["ann"], joints=""), "sessions_ann-2026.jsonl")


def test_the_file_holds_no_id(tmp_path):
    home = Home(tmp_path)
    home.root.mkdir(exist_ok=True)
    write_tombstones(home, forgotten(Subject(user="ann@example.org")))
    assert "ann" not in tombstones_path(home).read_text()
    assert read_tombstones(home).covers(None, "ann@example.org")


def test_two_tombstones_of_one_id_are_one_with_what_both_know():
    first, later = SeenBy(name="m", version="1", night="a", rows=3), SeenBy(name="m", version="1", night="a", rows=1)
    stones, ann = Tombstones(), Subject(user="ann")
    stones = stones.with_stone(stone_of(stones, ann, models=(first,), trajectories=3))
    stones = stones.with_stone(stone_of(stones, ann, models=(later,), trajectories=1))
    assert len(stones.stones) == 1
    assert stones.rows_of("models:/m/1") == 3
    assert stones.stones[0].trajectories == 3


@pytest.mark.parametrize("given", [{}, {"user": ""}, {"user": "a", "session": "s"}, {"user": "a", "key": "k"}, {"text": "short"}])
def test_a_subject_that_names_nothing_or_too_much_is_refused(given):
    with pytest.raises(ConfigError):
        Subject(**given)


def test_a_damaged_list_is_refused_for_it_would_forget_nothing(tmp_path):
    home = Home(tmp_path)
    home.root.mkdir(exist_ok=True)
    tombstones_path(home).write_text("{}}")
    with pytest.raises(DataError, match="is damaged"):
        read_tombstones(home)
