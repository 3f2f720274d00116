"""Settings that have no effect beside others are told in one line, and those that have one are not."""

from __future__ import annotations

from pathlib import Path

import pytest

from clawpipe.core.config import load_config
from clawpipe.core.config.idle import _RULES, idle_note
from clawpipe.core.config.load import setting_field
from clawpipe.core.services.stack import project_directory

CHATS = ("rollouts=null", "trajectories=[new]", "environment.name=conversations", "train.method=sft")


def note(tmp_path: Path, *settings: str) -> str | None:
    (tmp_path / "night.yaml").write_text("{}")
    return idle_note(load_config(tmp_path / "night.yaml", settings))


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        (("train.adapter=full", "train.lora.rank=4", "train.lora.dropout=0.1"), "train.lora.rank, train.lora.dropout (train."),
        (("train.ppo.gamma=0.9",), "train.ppo.gamma (train.method is grpo)"),
        (("train.method=sft", "train.loss.clip_low=0.1"), "train.loss.clip_low (the loss of sft has no such terms)"),
        (("train.patience=5",), "train.patience (train.validation is 0)"),
        (("curation.pairs.margin=0.3",), "curation.pairs.margin (the method learns from no pairs)"),
        (("train.method=ppo", "curation.baseline=leave-one-out"), "curation.baseline (ppo has no advantages within groups)"),
        (("curation.imitate=any",), "curation.imitate (train.method is not sft)"),
        ((*CHATS, "environment.train_items=9"), "environment.train_items (conversations have no tasks)"),
        (("evaluation.heldout_share=0.3",), "evaluation.heldout_share (the verdict is about tasks of the environment)"),
        (("rollouts.engine.timeout=9",), "rollouts.engine.timeout (the engine is in this process)"),
        (("train.patience=5", "serving.max_divergence=0.2"), "train.patience (train.validation is 0); serving.max_divergence"),
    ],
)  # fmt: skip
def test_a_setting_without_effect_is_told(tmp_path, settings, told):
    said = note(tmp_path, *settings)
    assert said is not None
    assert said.startswith("no effect in this night: ")
    assert told in said


@pytest.mark.parametrize(
    "settings",
    [
        (),
        ("train.lora.rank=4",),
        ("train.adapter=full", "train.lora.rank=16"),  # the default
        ("train.method=ppo", "train.ppo.gamma=0.9"),
        ("train.method=dpo", "curation.pairs.margin=0.3"),
        ("train.validation=0.1", "train.patience=5"),
        (*CHATS, "curation.imitate=any", "evaluation.heldout_share=0.3"),
    ],
)
def test_a_setting_with_an_effect_is_not(tmp_path, settings):
    assert note(tmp_path, *settings) is None


def test_the_shipped_configs_have_none():
    files = sorted((project_directory() / "configs").glob("*.yaml"))
    assert {file.name: idle_note(load_config(file)) for file in files} == dict.fromkeys(file.name for file in files)


def test_the_rules_name_settings():
    assert all(setting_field(name) for rule in _RULES for name in rule.names)
