"""The environments of one night: labels, items that can be told apart, and who is asked about which."""

from __future__ import annotations

import pytest

from clawpipe.core.config.environment import Environments, EnvironmentSpec
from clawpipe.core.conversation.messages import Message
from clawpipe.errors import ConfigError
from clawpipe.play.environments.base import Outcome, question_item
from clawpipe.play.environments.ending import Ending, hindsight_of, outcome_of
from clawpipe.play.environments.labelled import LabelledEnvironment, labelled_item, own_item
from clawpipe.play.environments.letters import LettersEnvironment
from clawpipe.play.environments.openings import opening_for, openings
from clawpipe.play.environments.several import named, open_environments


def several(*parts):
    return Environments.model_validate({"parts": parts})


def test_labels_are_the_names_unless_given():
    played = several("shop", {"name": "shop", "options": {"inventory_seed": 3}}, {"name": "letters", "label": "abc"})
    assert [(one.label, one.name) for one in named(played)] == [("shop", "shop"), ("shop-2", "shop"), ("abc", "letters")]


def test_a_label_that_is_given_is_not_taken_again():
    assert [one.label for one in named(several("shop", {"name": "letters", "label": "shop"}))] == ["shop-2", "shop"]


def test_a_name_that_is_no_label_needs_one(tmp_path):
    (tmp_path / "odd.py").write_text(
        "from clawpipe.play.environments.letters import LettersEnvironment\n"
        "class Odd(LettersEnvironment):\n    name = 'two words'\n    kind = 'chat'\n"
    )
    with pytest.raises(ConfigError, match="set `label`"):
        named(several("shop", f"{tmp_path}/odd.py:Odd"))


def test_one_environment_keeps_its_items():
    with open_environments(EnvironmentSpec(name="letters")) as opened:
        [only] = opened
        assert only.items("train", 2, 0) == LettersEnvironment().items("train", 2, 0)
        assert opened.of("imported") is only


def test_items_of_several_can_be_told_apart():
    with open_environments(several("shop", {"name": "shop", "options": {"inventory_seed": 3}}, "letters")) as opened:
        made = [environment.items("heldout", 4, 0) for environment in opened]
        assert [item.environment for item in (made[0][0], made[1][0], made[2][0])] == ["shop", "shop-2", "letters"]
        assert made[0][0].slice.startswith("shop/")
        assert made[1][0].slice.startswith("shop-2/")
        assert made[0][0].identity == made[1][0].identity, "one question, whatever the options: it is held out of both"
        assert len({item.item_id for items in made for item in items}) == 12


def test_an_environment_is_asked_with_its_own_items():
    """Which is what it made, whatever it reads of them."""
    seen = []

    class Telling(LettersEnvironment):
        def start(self, item, seed):
            seen.append(item)

        def verify(self, item, messages):
            seen.append(item)
            return Outcome(1.0, True, "", {})

        def hindsight(self, item, messages):
            seen.append(item)

    inner = Telling()
    labelled = LabelledEnvironment(inner, "mine", "letters")
    [own], [item] = inner.items("train", 1, 0), labelled.items("train", 1, 0)
    assert item != own
    labelled.start(item, 0)
    outcome_of(labelled, item, [Message("assistant", "a")], Ending())
    hindsight_of(labelled, item, [], Ending())
    assert seen == [own] * 3


@pytest.mark.parametrize("ids", [("7", "easy"), ("letters:7", "easy"), ("mine:7", "mine/easy")])
def test_an_items_label_comes_off_as_it_went_on(ids):
    item = question_item(LettersEnvironment(), "train", 0, identity=ids[0], part=ids[1], question="?", truth={})
    assert own_item(labelled_item(item, "mine", "letters"), "letters") == item
    assert own_item(item, "letters") == item, "one without a label stays as it is"


def test_openings_are_by_environment():
    shop, letters = openings(several("shop", "letters"))
    assert [tool.name for tool in shop.specs()] == ["stock", "price", "weather", "calc"]
    assert letters.specs() == []
    assert opening_for((shop, letters), "letters") is letters
    assert opening_for((shop, letters), "imported") is shop, "what was recorded elsewhere is told as the first one's"


def test_a_package_has_the_tools_of_all():
    with open_environments(several("letters", "shop")) as opened:
        assert opened.name == "letters, shop"
        assert [tool.name for tool in opened.tools()] == ["stock", "price", "weather", "calc"]
