"""What a plan and a night's first sentence say of several environments."""

from __future__ import annotations

from clawpipe.core.config.night import NightConfig
from clawpipe.record.nights.compared import compared, shares_note

COUNTS = {"train_items": 32, "heldout_items": 60, "benchmark_items": 0}
TWO = {"environments": [{"name": "shop", "weight": 3}, {"name": "letters", "label": "abc"}], "environment": COUNTS}


def config(**settings):
    rollouts = {"items": 16, "group_size": 8}
    return NightConfig.model_validate({"rounds": 2, "model": {"base": "random"}, "rollouts": rollouts} | settings)


def test_a_night_says_what_each_environment_has():
    assert compared(config(**TWO), [], [], None) == (
        "grpo from random on 256 rollouts in shop (192) and abc (64); "
        "compared with random on 60 held-out items of the environments shop (45) and abc (15)"
    )


def test_a_plan_says_how_items_are_shared():
    assert shares_note(config(**TWO)) == "32 train items: shop (24) and abc (8); 60 held-out items: shop (45) and abc (15)"


def test_a_single_environment_shares_nothing():
    assert shares_note(config()) is None
    sentence = "256 rollouts in shop; compared with random on 160 held-out items of the environment shop"
    assert compared(config(), [], [], None).endswith(sentence)
