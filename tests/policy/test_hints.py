"""Hints in prompts: their place, their choice, and that recorded tokens stay unchanged."""

from hypothesis import given
from hypothesis import strategies as st

from clawpipe.core.config.training import Opd
from clawpipe.core.conversation.messages import Message
from clawpipe.model.policy.hints import Hint, candidates, hinted_ids, hinted_messages, hints_by_trajectory
from clawpipe.model.policy.renderer import Renderer
from clawpipe.model.policy.tiny import byte_tokenizer

QUESTION = Message("user", "How many mugs?")
SHOWN = (Message("assistant", "stock(mug)"), Message("tool", "57", name="stock"), Message("assistant", "57"))
RENDERER = Renderer(byte_tokenizer(), "pythonic", ())
TEXT = st.text(st.characters(codec="utf-8"), max_size=30)
TURNS = st.lists(st.builds(Message, st.sampled_from(["user", "assistant", "system"]), TEXT), max_size=5)


def test_a_text_becomes_a_tagged_note_in_the_last_user_message():
    told = hinted_messages([Message("user", "hi"), Message("assistant", "yes?"), QUESTION, SHOWN[0]], Hint("Use stock."), 3)
    note = Message("user", "How many mugs?\n\n<hint>\nUse stock.\n</hint>")
    assert told == [Message("user", "hi"), Message("assistant", "yes?"), note, SHOWN[0]]


def test_where_no_user_speaks_the_note_is_a_message_of_its_own():
    assert hinted_messages([], Hint("Go."), 1) == [Message("user", "<hint>\nGo.\n</hint>")]


def test_a_demonstration_is_shown_as_an_earlier_dialogue():
    told = hinted_messages([QUESTION], Hint(demonstration=SHOWN), 3)
    assert told == [QUESTION, *SHOWN, QUESTION, *SHOWN, QUESTION, *SHOWN, QUESTION]


@given(TURNS, st.integers(1, 4))
def test_no_hint_changes_nothing(messages, repeats):
    assert hinted_messages(messages, None, repeats) == messages


@given(TURNS, TEXT, st.lists(st.integers(0, 258), max_size=12))
def test_recorded_tokens_follow_the_hinted_prompt_unchanged(messages, text, recorded):
    prompt = RENDERER.prompt(messages)
    told = hinted_messages(messages, Hint(text), 1)
    assert hinted_ids(RENDERER, told, [*prompt, *recorded], len(prompt)) == RENDERER.prompt(told) + recorded
    assert hinted_ids(RENDERER, messages, [*prompt, *recorded], len(prompt)) == [*prompt, *recorded]


def test_of_texts_the_shortest_are_tried_each_once():
    texts = ["bbb", " a ", "cc", "bbb", "dddd", "", "  ", "ee", "a"]
    assert candidates(texts, SHOWN, Opd(candidates=4)) == [Hint("a"), Hint("cc"), Hint("ee"), Hint("bbb")]
    assert candidates(["", " "], SHOWN, Opd()) == []


def test_of_demonstrations_there_is_one_or_none():
    shown = Opd(hint="demonstration")
    assert candidates(["text"], SHOWN, shown) == [Hint(demonstration=SHOWN)]
    assert candidates(["text"], (), shown) == []


def test_hints_of_all_scorers_of_a_trajectory_come_together():
    dialogue = [message.as_dict() for message in SHOWN]
    rows = [
        {"trajectory_id": "a", "turn": None, "hints": ["long hint"], "demonstration": None},
        {"trajectory_id": "a", "turn": None, "hints": ["short"], "demonstration": dialogue},
        {"trajectory_id": "a", "turn": None, "hints": None, "demonstration": dialogue[:1]},
        {"trajectory_id": "a", "turn": 1, "hints": ["a turn"], "demonstration": None},
        {"trajectory_id": "b", "turn": None, "hints": None, "demonstration": None},
        {"trajectory_id": "c", "turn": 0, "hints": ["a turn"], "demonstration": None},
    ]
    assert hints_by_trajectory(rows, Opd()) == {"a": [Hint("short"), Hint("long hint")]}
    assert hints_by_trajectory(rows, Opd(hint="demonstration")) == {"a": [Hint(demonstration=SHOWN)]}
