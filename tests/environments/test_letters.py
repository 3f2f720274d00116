"""The environment of lowercase letters."""

import pytest

from clawpipe.core.conversation.messages import Message
from clawpipe.errors import DataError
from clawpipe.play.environments.letters import LettersEnvironment

LETTERS = LettersEnvironment()
ITEM = LETTERS.items("train", 1, 0)[0]


def play(*replies):
    episode, messages = LETTERS.start(ITEM), list(ITEM.messages)
    for reply in replies:
        messages.append(Message("assistant", reply))
        messages += episode.respond(messages) or []
    episode.close()
    return messages


def test_two_turns():
    assert [message.role for message in play("a", "b")] == ["user", "assistant", "user", "assistant"]
    assert play("a")[-1] == Message("user", "again")


@pytest.mark.parametrize(
    ("replies", "value"),
    [(("", ""), 0.0), (("abc", "XYZ"), 0.5), (("abcd", ""), 1.0), (("é1 \ufffd", "a"), 0.2), (("ab", "c."), 0.75)],
)
def test_the_share_of_letters(replies, value):
    outcome = LETTERS.verify(ITEM, play(*replies))
    assert (outcome.value, outcome.success) == (value, value >= 0.5)


def test_whoever_follows_the_demonstration_succeeds():
    for item in LETTERS.items("train", 4, 0):
        hindsight = LETTERS.hindsight(item, item.messages)
        shown = hindsight.demonstration
        assert play(*(message.content for message in shown[::2]))[1:] == list(shown)
        assert LETTERS.verify(item, [*item.messages, *shown]).value == 1.0
        assert item.messages[0].content in hindsight.hints[0]


def test_items():
    train, heldout = LETTERS.items("train", 300, 0), LETTERS.items("heldout", 300, 0)
    assert LETTERS.items("train", 300, 0) == train
    assert {item.slice for item in train[::2]} == {"short"}
    assert {item.slice for item in train[1::2]} == {"long"}
    assert len({item.item_id for item in train + heldout}) == 600
    with pytest.raises(DataError, match="to be had"):
        LETTERS.items("train", 200_000, 0)


@pytest.mark.parametrize("split", ["train", "heldout"])
def test_thirty_nights_find_unseen_words(split):
    distinct = LETTERS.distinct_items(split)
    assert distinct >= 30 * 800
    assert len({item.identity for item in LETTERS.items(split, 30 * 160, 0)}) == 30 * 160
