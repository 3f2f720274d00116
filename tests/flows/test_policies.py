"""Who is there before a night, and who teaches it."""

from __future__ import annotations

import pytest

from clawpipe.core.config.night import NightConfig
from clawpipe.core.store.home import Home
from clawpipe.errors import ConfigError
from clawpipe.model.policy.base import resolve_base
from clawpipe.model.policy.version import adapter_ref, base_ref
from clawpipe.record.nights.record import Incumbent
from flows import opening
from flows.policies import UNFETCHED, teacher_of

BASE = base_ref("random", "b" * 64, "pythonic", "float32")
CHAMPION = Incumbent(version="1", night="n", policy=adapter_ref(BASE, "c" * 64, ()))


def config(teacher: str, method: str = "opd", **train: object) -> NightConfig:
    return NightConfig.model_validate({"train": {"method": method, "opd": {"teacher": teacher}, **train}})


def test_which_policy_is_the_teacher():
    assert teacher_of(config("start"), BASE, CHAMPION) is None
    assert teacher_of(config("base"), BASE, CHAMPION) == BASE
    assert teacher_of(config("champion"), BASE, CHAMPION) == CHAMPION.policy
    named = teacher_of(config("random"), BASE, CHAMPION)
    assert named is not None
    assert (named.base_name, named.digest, named.adapter) == ("random", resolve_base("random").digest, False)


def test_a_model_that_is_yet_to_be_fetched_has_no_digest():
    named = teacher_of(config("nobody/nothing"), BASE, None)
    assert named is not None
    assert named.digest == UNFETCHED


def test_a_champion_that_is_not_there_cannot_teach():
    with pytest.raises(ConfigError, match="no champion to teach"):
        teacher_of(config("champion"), BASE, None)


def test_methods_without_a_teacher_have_none_for_any_settings():
    assert teacher_of(config("champion", "grpo"), BASE, None) is None
    assert teacher_of(config("champion", "combine", combine={"w_opd": 0.0}), BASE, None) is None


@pytest.mark.parametrize(("draw", "counted"), [(None, {"a": 1}), ("sweep", {})])
def test_a_night_that_meets_another_champion_counts_anew(home: Home, monkeypatch: pytest.MonkeyPatch, draw, counted):
    """It was killed after its look, and another night looked at the same items; nights of one draw go on with the same ones."""
    champions = iter([None, None, CHAMPION])
    monkeypatch.setattr(opening, "_incumbent", lambda *_: next(champions))
    config = NightConfig(night="monday", draw=draw)
    night, ledger = opening._record(home, config, home).night, opening.ledger_of(home, config)
    ledger.record(night, draw or night, ["a"])
    ledger.record("tuesday", "tuesday", ["a"])
    opening._record(home, config, home)  # the champion is the same
    assert ledger.seen(draw or night) == {}
    opening._record(home, config, home)
    assert ledger.seen(draw or night) == counted
