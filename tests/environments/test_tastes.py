"""People with tastes of their own."""

from __future__ import annotations

import pytest

from clawpipe.core.conversation.messages import Message
from clawpipe.errors import DataError
from clawpipe.play.environments.tastes import PEOPLE, TastesEnvironment
from clawpipe.play.judging.base import SCORERS

TASTES = TastesEnvironment()
ITEMS = dict(zip((person.name for person in PEOPLE), TASTES.items("train", len(PEOPLE), 0), strict=True))


def play(name, *replies):
    episode, messages = TASTES.start(ITEMS[name]), list(ITEMS[name].messages)
    for reply in replies:
        messages.append(Message("assistant", reply))
        messages += episode.respond(messages) or []
    episode.close()
    return messages


@pytest.mark.parametrize(
    ("name", "fits", "not_so"),
    [
        ("Ada", "For boiling water, and for nothing else in the whole world.", "one two " * 8 + "17"),
        ("Ada", "Tea.", ""),
        ("Ben", "First wipe it - gently - then dry it in the sun.", "Do this:\n- wipe it\n- dry it"),
        ("Ben", "It weighs 3. That is all.", "1. Wipe it.\n2. Dry it."),
        ("Ben", "Wipe it * dry it.", "  \u2022 wipe it"),
        ("Cleo", "Yes, CLEO, you should.", "Yes, you should."),
        ("Dev", "About 40 cm.", "About 40 cm, or 16 inches."),
        ("Dev", "Some 3 kilograms", "It is about as long as a metre."),
        ("Dev", "2 m tall", '16" tall, 2 m wide'),
        ("Dev", "A 5mm footing", "5 feet"),
        ("Emil", "How nice!", "How nice."),
    ],
)  # fmt: skip
def test_rules_of_taste(name, fits, not_so):
    item = ITEMS[name]
    assert TASTES.verify(item, [*item.messages, Message("assistant", fits)]).success
    assert not TASTES.verify(item, [*item.messages, Message("assistant", not_so)]).success


def test_success_is_what_was_known_before_anything_was_said():
    late = TASTES.verify(ITEMS["Cleo"], play("Cleo", "Hello.", "Hello, Cleo."))
    assert (late.value, late.success, late.evidence) == (0.5, False, {"fits": [False, True]})
    assert TASTES.verify(ITEMS["Cleo"], play("Cleo", "Hello, Cleo.", "Hello.")).success
    with pytest.raises(ValueError, match="no answer"):
        TASTES.verify(ITEMS["Ada"], ITEMS["Ada"].messages)


def test_two_questions_and_words_between_them():
    messages = play("Emil", "Hm.", "Hm.")
    assert [message.role for message in messages] == ["user", "assistant", "user", "assistant"]
    assert messages[0].content.startswith("Emil here. ")
    assert "Emil again. " in messages[2].content
    assert messages[0].content.partition(". ")[2] not in messages[2].content


@pytest.mark.parametrize("person", PEOPLE, ids=lambda person: person.name)
def test_what_people_say_is_understood_by_rules(person):
    """Words of thanks are good to the shipped judge, complaints bad, whichever question follows them."""
    judge = SCORERS.make("rules", {})
    for value, words in ((1.0, person.thanks), (-1.0, person.complains)):
        for said in words:
            reply = Message("user", f"{said} {person.name} again. What is a tin drum for?")
            shown = [*ITEMS[person.name].messages, Message("assistant", "So."), reply]
            row = {"messages": [message.as_dict() for message in shown], "turns": [], "kinds": None, "tokens": "none"}
            assert {score.value for score in judge.score({}, row | {"source": "captured"})} == {value}, said


def test_nobody_tells_the_policy_who_likes_what():
    for item in TASTES.items("train", 100, 3):
        person = next(person for person in PEOPLE if person.taste == item.slice)
        assert TASTES.preamble() == []
        assert person.likes not in item.messages[0].content
        assert TASTES.hindsight(item, item.messages).hints == (f"{person.name} likes {person.likes}.",)


def test_people_take_turns_and_things_stay_on_their_side():
    train, held = TASTES.items("train", 400, 1), TASTES.items("heldout", 400, 1)
    assert [item.slice for item in train[:5]] == [person.taste for person in PEOPLE]
    things = [{item.identity.partition("/")[2] for item in side} for side in (train, held)]
    assert not things[0] & things[1]
    assert len({item.identity for item in train + held}) == 800
    assert TASTES.items("train", 40, 1) == train[:40]
    assert TASTES.distinct_items("heldout") > 30 * 400
    with pytest.raises(DataError, match="to be had"):
        TASTES.items("train", 10**6, 0)
