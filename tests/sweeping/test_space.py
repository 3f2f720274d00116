"""The space of a sweep."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from optuna import create_study

from clawpipe.core.config import NightConfig, load_config
from clawpipe.core.config.load import with_settings
from clawpipe.core.services.stack import project_directory
from clawpipe.errors import ConfigError, NotFoundError
from clawpipe.start.sweeping.space import Range, draw, read_space

PROJECT = project_directory()


def read(tmp_path: Path, text: str) -> dict:
    path = tmp_path / "space.yaml"
    path.write_text(text)
    return read_space(path, NightConfig())


def test_ranges_and_choices_are_read(tmp_path):
    space = read(
        tmp_path,
        "train.learning_rate: {low: 1.0e-5, high: 1.0e-3, log: true}\n"
        "train.optimizer_steps: {low: 2, high: 8, step: 2}\n"
        "train.lora.target_modules: {choices: [all-linear, [q_proj, v_proj]]}\n",
    )
    values = draw(create_study().ask(), space)
    assert 1e-5 <= values["train.learning_rate"] <= 1e-3
    assert values["train.optimizer_steps"] in (2, 4, 6, 8)
    assert values["train.lora.target_modules"] in ("all-linear", ["q_proj", "v_proj"])
    assert with_settings(NightConfig(), values).train.optimizer_steps == values["train.optimizer_steps"]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("train.learning_rate: 3", "train.learning_rate"),
        ("train.learning_rate: {low: 1.0, high: 0.5}", "must be below"),
        ("train.learning_rate: {low: 0.0, high: 0.5, log: true}", "low > 0"),
        ("train.optimizer_steps: {low: 1, high: 8, log: true, step: 2}", "no `step`"),
        ("train.method: {choices: []}", "train.method"),
        ("train.method: {choices: [grpo, sgd]}", "train.method"),
        ("train.methd: {choices: [grpo]}", "train.methd"),
        ("train.optimizer_steps: {low: 0, high: 8}", "train.optimizer_steps"),
        ("night: {choices: [a]}", "the sweep sets the label"),
        ("environment.heldout_items: {low: 10, high: 20}", "measured on"),
        ("evaluation.temperature: {low: 0.0, high: 1.0}", "measured on"),
        ("{}", "nothing to vary"),
        ("[]", "mapping"),
    ],
)
def test_what_cannot_be_swept_is_said(tmp_path, text, told):
    with pytest.raises(ConfigError, match=told):
        read(tmp_path, text)


def test_no_file_is_not_found(tmp_path):
    with pytest.raises(NotFoundError):
        read_space(tmp_path / "nowhere.yaml", NightConfig())


@given(st.integers(-50, 50), st.integers(1, 50), st.booleans())
def test_whole_ends_give_whole_numbers_and_others_do_not(low: int, width: int, whole: bool):
    ends = (low, low + width) if whole else (float(low), float(low + width))
    value = Range(low=ends[0], high=ends[1]).draw(create_study().ask(), "x")
    assert isinstance(value, int if whole else float)
    assert low <= value <= low + width


@pytest.mark.parametrize("path", sorted((PROJECT / "configs" / "spaces").glob("*.yaml")), ids=lambda path: path.name)
def test_shipped_spaces_fit_the_demo(path: Path):
    assert read_space(path, load_config(PROJECT / "configs" / "demo.yaml"))
