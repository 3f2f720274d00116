"""Rewards as values, sides of the split, seeds, and actions as text."""

from __future__ import annotations

import pytest

from clawpipe.core.conversation.messages import Message, ToolCall
from clawpipe.errors import ConfigError, DataError
from clawpipe.play.environments.base import Verdict
from clawpipe.play.environments.libraries.byte_tokenizer import ByteTokenizer
from clawpipe.play.environments.libraries.common import LibraryEnvironment, Scale, Tally, chosen, first, numbers, sided, text_of
from clawpipe.play.environments.libraries.gymnasium import GymEpisode, observed
from clawpipe.play.environments.libraries.openenv import Actions
from clawpipe.play.environments.libraries.openenv import observed as seen


class Plain(LibraryEnvironment):
    library = "gymnasium"


@pytest.mark.parametrize(
    ("given", "reward", "value", "success"),
    [
        ({}, 1.0, 1.0, True),
        ({}, 0.5, 0.5, False),
        ({}, 3.0, 1.0, True),
        ({"lowest": -1}, 0.0, 0.5, False),
        ({"lowest": -1}, -7.0, 0.0, False),
        ({"highest": 20, "success": 5}, 10.0, 0.5, True),
    ],
)
def test_a_reward_becomes_a_value(given, reward, value, success):
    outcome = Plain("X", given, "").verify(None, [], Verdict({"reward": reward}))  # pyright: ignore[reportArgumentType]
    assert (outcome.value, outcome.success, outcome.evidence) == (value, success, {"reward": reward})


@pytest.mark.parametrize(
    ("lowest", "refused", "ended", "value"),
    [(-100, 3, False, 0.0), (-100, 0, False, 0.8), (-100, 3, True, 0.8), (0, 3, False, 0.0), (-20.0, 1, False, 0.0)],
)
def test_who_does_not_act_does_not_save_the_cost(lowest, refused, ended, value):
    """In a world whose steps cost something, a reply that is no action would be the best one."""
    told = Verdict({"reward": -20.0, "steps": 2, "refused": refused, "ended": ended})
    outcome = Plain("X", {"lowest": lowest}, "").verify(None, [], told)  # pyright: ignore[reportArgumentType]
    assert (round(outcome.value, 1), outcome.success) == (value, False)


@pytest.mark.parametrize(
    ("lowest", "costs", "turn"),
    [(-100.0, [], -100.0), (-100.0, [-1.0], -100.0), (0.0, [-1.0, -10.0, -1.0], -10.0), (0.0, [], 0.0), (0.0, [1.0], 0.0)],
)
def test_a_turn_without_an_action_is_worth_no_more_than_a_step(lowest, costs, turn):
    tally = Tally(lowest)
    steps = [tally.step("on", cost, False).reward for cost in costs]
    answer = tally.refused(ValueError("answer with\na number"))
    assert (answer.reward, answer.done, answer.messages) == (turn, False, [Message("user", "error: answer with a number")])
    assert all(turn <= step for step in steps)
    assert tally.verdict().evidence == {"reward": sum(costs), "steps": len(costs), "refused": 1, "ended": False}


class Taking:
    """A world with an action space that has short words only, and which raises of what it does not know."""

    render_mode, metadata = None, {}

    class action_space:  # noqa: N801
        @staticmethod
        def contains(action):
            return 0 < len(action) < 6

    def step(self, action):
        if action not in ("look", "go on"):
            raise KeyError(action)
        return "a door", 0.5, False, False, {}


def test_what_a_world_raises_is_its_own_fault_within_its_space():
    episode = GymEpisode(Taking(), str.strip, Tally(-1.0))
    assert episode.respond([Message("assistant", "look")]).reward == 0.5
    assert episode.respond([Message("assistant", "")]).reward == -1.0
    assert episode.respond([Message("assistant", "open the door")]).messages[0].content == "error: 'open the door'"
    with pytest.raises(KeyError):
        episode.respond([Message("assistant", "sing")])


@pytest.mark.parametrize("verdict", [None, Verdict({}), Verdict({"reward": None}), Verdict({"reward": float("nan")})])
def test_an_episode_without_a_reward_has_no_outcome(verdict):
    with pytest.raises(ValueError, match="gave no reward"):
        Plain("X", {}, "").verify(None, [], verdict)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(("given", "what"), [({"most": 1}, "no most"), ({"highest": 0}, "not above")])
def test_a_scale_that_is_none_is_refused(given, what):
    with pytest.raises(ConfigError, match=what):
        Scale.of(given)


def test_seeds_are_on_one_side_and_new_each_night():
    train, held, again = (set(first(numbers(side, seed), 200, "x")) for side, seed in (("train", 0), ("heldout", 1), ("train", 0)))
    assert train == again
    assert not train & held
    assert len(train) == 200
    assert first(numbers("train", 0), 5, "x") == first(numbers("train", 0), 9, "x")[:5]


def test_a_list_of_tasks_is_split_by_its_identities():
    world = Plain("X", {}, "")
    items = [world.item(f"q{number}", [Message("user", f"q{number}")], {}) for number in range(100)]
    sides = sided([*items, items[0]], 0.3)
    assert {len(sides["train"]) + len(sides["heldout"])} == {100}
    assert 15 < len(sides["heldout"]) < 45
    assert chosen(sides, "train", 10, 0, "x") != chosen(sides, "train", 10, 1, "x")
    assert chosen(sides, "train", 10, 0, "x") == chosen(sides, "train", 20, 0, "x")[:10]
    with pytest.raises(DataError, match="200 items wanted"):
        chosen(sides, "train", 200, 0, "x")
    with pytest.raises(ConfigError, match="no share"):
        sided(items, 1.0)


def test_a_reply_is_read_with_its_calls():
    call = ToolCall("1", "search", '{"q": "x"}')
    assert text_of(Message("assistant", "Look.", (call,))) == (
        'Look.\n<tool_call>{"name": "search", "arguments": {"q": "x"}}</tool_call>'
    )
    assert text_of(Message("assistant", "", (ToolCall("1", "", "[b(", malformed=True),))) == "[b("


class Drawn:
    render_mode = "ansi"

    def render(self) -> str:
        return "\n\x1b[41mS\x1b[0mF\n\x1b[35mG\x1b[0m\x1b[2J"[:-4]


def test_what_a_picture_of_letters_highlights_is_kept():
    assert observed(Drawn(), 0, {}) == "[S]F\n[G]"
    assert observed(None, "You see a door.", {}) == "You see a door."


TEXT, NUMBER = {"properties": {"say": {"type": "string"}, "metadata": {}}}, {"properties": {"at": {"type": "integer"}}}


@pytest.mark.parametrize(
    ("schema", "field", "reply", "action"),
    [
        (TEXT, "", "hello", {"say": "hello"}),
        (NUMBER, "", "3", {"at": 3}),
        ({"properties": TEXT["properties"] | NUMBER["properties"]}, "say", "hello", {"say": "hello"}),
        ({"properties": TEXT["properties"] | NUMBER["properties"]}, "", '{"say": "a", "at": 1}', {"say": "a", "at": 1}),
    ],
)
def test_a_reply_is_an_action_of_a_server(schema, field, reply, action):
    assert Actions(schema, field).read(reply) == action


def test_a_reply_that_is_no_action_is_told():
    assert Actions(NUMBER, "").wanted == 'one fits {"type": "integer"}'
    assert Actions({"properties": TEXT["properties"] | NUMBER["properties"]}, "").wanted.startswith('one fits {"say": {')
    with pytest.raises(ValueError, match="answer with JSON"):
        Actions(NUMBER, "").read("three")
    with pytest.raises(ConfigError, match="no 'loud'"):
        Actions(TEXT, "loud")


def test_an_observation_is_shown_as_text_or_json():
    assert seen({"text": "Hi"}, "") == "Hi"
    assert seen({"text": "Hi", "at": 1}, "text") == "Hi"
    assert seen({"text": "Hi", "at": 1}, "") == '{"text": "Hi", "at": 1}'


def test_bytes_as_tokens_keep_a_conversation():
    tokenizer, said = ByteTokenizer.from_pretrained("any"), [{"role": "user", "content": "2 \u00d7 3?"}]
    text = tokenizer.apply_chat_template(said, tokenize=False, add_generation_prompt=True)
    assert isinstance(text, str)
    assert tokenizer.messages_of(text) == said
    whole = tokenizer.apply_chat_template([*said, {"role": "assistant", "content": "6"}])
    assert whole[: len(tokenizer.encode(text))] == tokenizer.encode(text)
    assert tokenizer.decode(tokenizer.encode("\u00d7")) == "\u00d7"
