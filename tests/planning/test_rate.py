"""The learning rate by width, adapter and method, and what a plan says of it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clawpipe.core.config import NightConfig
from clawpipe.core.config.load import with_settings
from clawpipe.core.config.rates import EXPONENT, gain, planned_rate, rate_for, rate_of
from clawpipe.core.config.training import Lora, Train
from clawpipe.model.planning.architecture import width_of
from clawpipe.model.planning.rate import rate_facts, rate_notes, rate_of_night

MEASURED = json.loads((Path(__file__).parents[2] / "benchmarks" / "rates.json").read_text())


@pytest.mark.parametrize(
    ("train", "width", "rate"),
    [
        ({}, 576, 3e-4),
        ({"method": "dpo"}, 576, 2e-4),
        ({}, 4 * 576, 1.7e-4),  # 3e-4 / 4 ** 0.43
        ({"lora": {"rank": 64, "alpha": 32}}, 576, 3e-4),  # the rank alone changes nothing
        ({"lora": {"rank": 16, "alpha": 64}}, 576, 1.5e-4),
        ({"lora": {"rank": 16, "alpha": 32, "variant": "rslora"}}, 576, 7.5e-5),  # 32 * 4 of gain
        ({"adapter": "full"}, 576, 3e-5),
        ({"adapter": "full"}, 4 * 576, 8.4e-6),  # 3e-5 / 4 ** 0.92
        ({"adapter": "full", "lora": {"alpha": 64}}, 576, 3e-5),  # there is no adapter whose gain would count
    ],
)
def test_the_function(train: dict[str, Any], width: int, rate: float):
    assert rate_for(Train.model_validate(train), width) == pytest.approx(rate)


def test_a_set_rate_is_taken_as_it_is():
    assert rate_of(Train(learning_rate=1e-3, adapter="full"), 4096) == 1e-3
    assert rate_of(Train(), 576) == 3e-4


@given(st.integers(32, 16384), st.integers(32, 16384), st.sampled_from(["lora", "full"]))
def test_wider_bases_never_take_a_higher_rate(one: int, two: int, adapter: Any):
    train = Train(adapter=adapter)
    assert rate_for(train, max(one, two)) <= rate_for(train, min(one, two))


@pytest.mark.parametrize("adapter", ["lora", "full"])
def test_the_exponents_are_the_measured_ones(adapter: str):
    assert EXPONENT[adapter] == pytest.approx(MEASURED[adapter]["exponent"], abs=0.02)
    assert list(MEASURED[adapter]["best"]) == ["64", "128", "256", "512"]


@pytest.mark.parametrize("adapter", ["lora", "full"])
def test_the_rule_is_within_a_factor_of_1_5_of_each_best_rate(adapter: Any):
    """Between the widths of random bases; their task has another level, so that of the narrowest is taken."""
    best = {int(width): rate for width, rate in MEASURED[adapter]["best"].items()}
    ruled = {width: best[64] * (64 / width) ** EXPONENT[adapter] for width in best}
    assert all(1 / 1.5 < ruled[width] / best[width] < 1.5 for width in best)


def test_gain_is_the_scale_times_the_rank():
    assert [gain(Lora(rank=4, alpha=8)), gain(Lora(rank=16, alpha=8, variant="dora"))] == [8.0, 8.0]
    assert gain(Lora(rank=16, alpha=8, variant="rslora")) == 32.0


@pytest.mark.parametrize(
    ("name", "width"),
    [("smollm2-135m-instruct", 576), ("Qwen/Qwen2.5-7B-Instruct", 3584), ("random", 64), ("nobody/no-such-model", None)],
)
def test_widths(name: str, width: int | None):
    assert width_of(name) == width


@pytest.mark.parametrize(
    "config",
    [{"hidden_size": 48}, {"text_config": {"hidden_size": 48}}, {"hidden_size": 48, "num_experts": 8}, {"n_embd": 48}],
    ids=str,
)
def test_the_width_of_a_directory(tmp_path: Path, config: dict[str, Any]):
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert width_of(str(tmp_path)) == 48


def a_night(**changes: Any) -> NightConfig:
    return with_settings(NightConfig(), {name.replace("__", "."): value for name, value in changes.items()})


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"model__base": "smollm2-135m-instruct"}, "train.learning_rate 0.0003, from .*width of 576 .measured.$"),
        ({"model__base": "Qwen/Qwen2.5-7B-Instruct"}, "train.learning_rate 0.00014, .*width of 3584 .not measured"),
        ({"model__base": "Qwen/Qwen2.5-7B-Instruct", "train__learning_rate": 1.4e-3}, "warning: .* is 10 times .*: 0.00014"),
        ({"model__base": "Qwen/Qwen2.5-7B-Instruct", "train__learning_rate": 1e-6}, "warning: .* is 1/140 of .*: 0.00014; a night"),
        ({"train__adapter": "full", "train__learning_rate": 3e-4}, "warning: .* 10 times .* all weights"),
        ({"model__base": "nobody/no-such-model"}, "width is not known"),
    ],
    ids=str,
)
def test_a_plan_says_where_the_rate_comes_from(changes: dict[str, Any], told: str):
    config = a_night(**changes)
    (note,) = rate_notes(config.train, rate_of_night(config))
    assert re.search(told, note), note


@pytest.mark.parametrize("rate", [1e-5, 1.3e-3])
def test_a_rate_of_ones_own_below_ten_times_is_not_spoken_of(rate: float):
    config = a_night(model__base="Qwen/Qwen2.5-7B-Instruct", train__learning_rate=rate)
    assert rate_notes(config.train, rate_of_night(config)) == []
    facts = {"learning_rate": rate, "set": True, "function": 1.4e-4, "width": 3584, "measured": False}
    assert rate_facts(config.train, rate_of_night(config)) == facts


def test_an_unknown_width_has_no_rate_until_the_base_is_here():
    found = planned_rate(Train(), None)
    assert (found.value, found.function, found.is_measured, found.is_large) == (None, None, False, False)
