"""Data sets for training: preferences, completions, prompts, in the shapes in which they are published."""

import json

import pytest

from clawpipe.core.conversation.messages import Message
from clawpipe.data.importers.formats.answered import read_completion, read_prompt
from clawpipe.data.importers.formats.huggingface import read_alpaca, read_preference, write_preference
from clawpipe.data.importers.strict_json import RefusedError
from tests.importers.reading import read_files

ASKED, GOOD, BAD = Message("user", "2+2?"), Message("assistant", "4"), Message("assistant", "5")


def said(role, content):
    return {"role": role, "content": content}


@pytest.mark.parametrize(
    "row",
    [
        {"prompt": "2+2?", "chosen": "4", "rejected": "5"},
        {"prompt": [said("user", "2+2?")], "chosen": [said("assistant", "4")], "rejected": [said("assistant", "5")]},
        {"chosen": [said("user", "2+2?"), said("assistant", "4")], "rejected": [said("user", "2+2?"), said("assistant", "5")]},
        {
            "prompt": "2+2?",
            "chosen": [said("user", "2+2?"), said("assistant", "4")],
            "rejected": [said("user", "2+2?"), said("assistant", "5")],
        },
        {"chosen": "\n\nHuman: 2+2?\n\nAssistant: 4", "rejected": "\n\nHuman: 2+2?\n\nAssistant: 5"},
        {"prompt": [{"from": "human", "value": "2+2?"}], "chosen": [said("assistant", "4")], "rejected": "5"},
    ],
)
def test_a_preference_in_every_shape(row):
    found = read_preference(row)
    assert (found.prompt, found.chosen, found.rejected) == ((ASKED,), (GOOD,), (BAD,))
    again = read_preference(write_preference(found))
    assert (again.prompt, again.chosen, again.rejected) == (found.prompt, found.chosen, found.rejected)


def test_a_preference_may_say_whose_it_is():
    row = {"prompt": "2+2?", "chosen": "4", "rejected": "5", "session_id": "s1", "user_id": "ann"}
    found = read_preference(row)
    assert (found.session, found.user, found.extra) == ("s1", "ann", {})
    assert read_preference(write_preference(found)) == found


def test_dialogues_part_where_an_answer_begins():
    start = [said("user", "hi"), said("assistant", "hey"), said("user", "2+2?")]
    more = [said("user", "sure?"), said("assistant", "yes")]
    found = read_preference(
        {"chosen": [*start, said("assistant", "4"), *more], "rejected": [*start, said("assistant", "5"), *more]}
    )
    assert [message.content for message in found.prompt] == ["hi", "hey", "2+2?"]
    assert [message.content for message in found.chosen] == ["4", "sure?", "yes"]


def test_the_margin_is_the_score_difference_unless_negative():
    row = {"prompt": "2+2?", "chosen": "4", "rejected": "5", "score_chosen": 8, "score_rejected": 5.5, "source": "x"}
    assert read_preference(row).margin == 2.5
    assert read_preference(row).extra == {"score_chosen": 8, "score_rejected": 5.5, "source": "x"}
    assert read_preference(row | {"score_chosen": 1}).margin is None


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({"prompt": "p", "chosen": "a", "rejected": "a"}, "the same"),
        ({"chosen": "a", "rejected": "b"}, "no user message"),
        ({"prompt": "p", "chosen": [], "rejected": "b"}, "chosen: does not answer"),
        ({"prompt": "p", "chosen": None, "rejected": "b"}, "chosen: missing"),
        ({"prompt": "p", "chosen": "a", "rejected": {"text": "b"}}, "role: missing"),
        ({"prompt": "p", "chosen": "a", "rejected": [said("user", "b")]}, "rejected: does not answer"),
    ],
)
def test_what_is_no_preference_is_refused(row, reason):
    with pytest.raises(RefusedError, match=reason):
        read_preference(row)


def test_only_the_completion_is_learned():
    context = [said("user", "hi"), said("assistant", "hey"), said("user", "2+2?")]
    found = read_completion({"prompt": context, "completion": "4", "source": "x"})
    assert found.kinds == ("side", "main")
    assert (found.prompt, found.extra, found.judgements) == ("hi", {"source": "x"}, ())


@pytest.mark.parametrize(("label", "value"), [(True, 1.0), (False, 0.0)])
def test_a_labelled_completion_is_scored(label, value):
    [judged] = read_completion({"prompt": "2+2?", "completion": "4", "label": label}).judgements
    assert (judged.value, judged.success) == (value, label)
    assert read_completion({"prompt": "2+2?", "completion": "4", "label": 3}).extra == {"label": 3}


def test_a_prompt_keeps_what_a_verifier_needs():
    found = read_prompt({"prompt": "2+2?", "answer": "4", "tools": '[{"name": "sum"}]'})
    assert (found.messages, found.extra, found.tools) == ((ASKED,), {"answer": "4"}, '[{"name": "sum"}]')
    with pytest.raises(RefusedError, match="ends with an answer"):
        read_prompt({"prompt": [said("user", "q"), said("assistant", "a")]})


FRENCH, HELLO = Message("system", "In French."), Message("user", "Hello")
SIDES = {
    "chosen": [said("user", "Hello"), said("assistant", "Bonjour")],
    "rejected": [said("user", "Hello"), said("assistant", "Hi")],
}


@pytest.mark.parametrize("name", ["system", "system_prompt"])
@pytest.mark.parametrize(
    ("read", "row"),
    [
        (read_preference, {"prompt": "Hello", "chosen": "Bonjour", "rejected": "Hi"}),
        (read_preference, {"instruction": "Hello", "chosen": "Bonjour", "rejected": "Hi"}),
        (read_preference, {"prompt": [said("user", "Hello")]} | SIDES),
        (read_preference, SIDES),
        (read_prompt, {"prompt": "Hello"}),
        (read_prompt, {"prompt": [said("user", "Hello")]}),
        (read_completion, {"prompt": "Hello", "completion": "Bonjour"}),
        (read_completion, {"prompt": [said("user", "Hello")], "completion": "Bonjour"}),
        (read_alpaca, {"instruction": "Hello", "output": "Bonjour"}),
    ],
)
def test_a_system_message_beside_a_prompt_comes_first(read, row, name):
    found = read(row | {name: "In French."})
    before = found.prompt if read == read_preference else found.messages[:2]
    assert (tuple(before), found.extra) == ((FRENCH, HELLO), {})


def test_sides_that_repeat_the_user_keep_the_system_message():
    given = [said("system", "In French."), said("user", "Hello")]
    assert read_preference({"prompt": given} | SIDES).prompt == (FRENCH, HELLO)
    whole = {name: [said("system", "Briefly."), *side] for name, side in SIDES.items()}
    found = read_preference({"prompt": given, "system": "In French."} | whole)
    assert (found.prompt, found.extra) == ((Message("system", "Briefly."), HELLO), {"system": "In French."})


@pytest.mark.parametrize(("session", "user"), [("session_id", "user_id"), ("conversation_id", "user")])
@pytest.mark.parametrize(
    "row",
    [
        {"instruction": "i", "output": "o"},
        {"conversations": [{"from": "human", "value": "q"}, {"from": "gpt", "value": "a"}]},
        {"messages": [said("user", "q"), said("assistant", "a")]},
        {"prompt": "q", "completion": "a"},
    ],
)
def test_every_row_may_say_whose_it_is(tmp_path, row, session, user):
    (tmp_path / "a.jsonl").write_text(json.dumps(row | {session: "s", user: "bob"}) + "\n")
    [conversation] = read_files([str(tmp_path)]).conversations
    assert (conversation.session, conversation.user, conversation.extra) == ("s", "bob", {})


def test_completions_and_prompts_may_say_whose_they_are():
    for read, row in ((read_completion, {"prompt": "2+2?", "completion": "4"}), (read_prompt, {"prompt": "2+2?"})):
        for seven in ("7", 7, 7.0):
            found = read(row | {"session_id": "s1", "user_id": seven})
            assert (found.session, found.user, found.extra) == ("s1", "7", {})
        nobodys = read(row | {"session_id": True, "user_id": ["x"]})
        assert (nobodys.session, nobodys.user, nobodys.extra) == (None, None, {"session_id": True, "user_id": ["x"]})


@pytest.mark.parametrize(
    ("row", "read_as"),
    [
        ({"chosen": None, "rejected": "b"}, "chosen: missing"),
        ({"chosen": "a"}, "rejected: missing"),
        ({"chosen": "a", "rejected": {"text": "b"}}, "rejected[].role: missing"),
        ({"chosen": None, "rejected": None}, "hf-prompt"),
        ({"chosen": 0, "rejected": 1}, "hf-prompt"),
        ({"chosen": "", "rejected": None, "completion": "a"}, "hf-completion"),
        ({"chosen": "x", "messages": [said("user", "q"), said("assistant", "a")]}, "chat"),
    ],
)
def test_a_preference_without_one_of_its_sides_is_no_prompt(row, read_as, tmp_path):
    (tmp_path / "a.jsonl").write_text(json.dumps({"prompt": "p"} | row))
    reading = read_files([str(tmp_path)])
    assert [*reading.formats, *(one.reason for one in reading.refused)] == [read_as]


def test_preferences_of_openai_and_of_an_arena():
    asked, good, bad = said("user", "2+2?"), said("assistant", "4"), said("assistant", "5")
    tuned = {"input": {"messages": [asked], "tools": [{"name": "f"}]}, "preferred_output": [good], "non_preferred_output": [bad]}
    row = read_preference(tuned)
    assert (row.prompt, row.chosen, row.rejected, bool(row.tools)) == ((ASKED,), (GOOD,), (BAD,), True)
    arena = {"conversation_a": [asked, bad], "conversation_b": [asked, good], "winner": "model_b"}
    row = read_preference(arena)
    assert (row.prompt, row.chosen, row.rejected) == ((ASKED,), (GOOD,), (BAD,))
    with pytest.raises(RefusedError, match="winner: neither side"):
        read_preference(arena | {"winner": "tie"})
