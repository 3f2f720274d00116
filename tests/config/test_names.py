"""Names of other systems: each leads to something that is there, and is answered wherever it may be typed."""

import re
from pathlib import Path

import pytest
import typer

from clawpipe.cli.main import app
from clawpipe.core.config.load import load_config, setting_field
from clawpipe.core.config.names.table import SYSTEMS, kind_of, meanings, names, near
from clawpipe.errors import ConfigError

CODE = "\n".join(path.read_text() for path in Path("clawpipe").rglob("*.py") if "config/names" not in path.as_posix())
OF_LIBRARIES = {"HF_TOKEN", "HF_HOME", "CUDA_VISIBLE_DEVICES", "WANDB_API_KEY", "TINKER_API_KEY", "TINKER_BASE_URL"}
TARGETS = sorted({target for known in names() for target in known.targets})


def of_kind(kind):
    return [target for target in TARGETS if kind_of(target) == kind]


@pytest.mark.parametrize("target", of_kind("setting"))
def test_a_setting_is_one_of_a_night(target):
    assert setting_field(target) is not None


@pytest.mark.parametrize("target", of_kind("command"))
def test_a_command_and_its_flags_are_there(target):
    _, *words = target.split()
    command = typer.main.get_command(app)
    while hasattr(command, "commands") and words:
        command = command.commands[words.pop(0)]
    known = {flag for parameter in command.params for flag in (*parameter.opts, *parameter.secondary_opts)}
    assert {word for word in words if word.startswith("--")} <= known


@pytest.mark.parametrize("target", of_kind("page"))
def test_a_page_is_there(target):
    assert Path("docs", target).is_file()


@pytest.mark.parametrize("target", of_kind("variable"))
def test_a_variable_is_read_by_clawpipe_or_a_library(target):
    assert target[1:] in OF_LIBRARIES or target[1:] in CODE


def test_what_is_not_here_says_why():
    assert [known.name for known in names() if not known.targets and not known.note] == []


def test_a_system_names_each_thing_once():
    for system in SYSTEMS:
        listed = [known.name for known in names() if known.system == system]
        assert len(set(listed)) == len(listed)


@pytest.mark.parametrize(
    ("asked", "targets"),
    [
        ("ppo_clip_ratio", ("train.loss.clip_low", "train.loss.clip_high")),
        ("PPO-clip-ratio", ("train.loss.clip_low", "train.loss.clip_high")),
        ("opd_weight", ("train.combine.w_opd",)),
        ("--eps-clip-c", ("train.loss.dual_clip",)),
        ("actor_rollout_ref.rollout.n", ("rollouts.group_size",)),
        ("rollout_batch_size", ("rollouts.items",)),  # what a round takes, and not the pool that it is drawn from
        ("data.train_batch_size", ("rollouts.items",)),
        ("kl_loss_coef", ("train.loss.kl_coef",)),
        ("vllm_gpu_memory_utilization", ("rollouts.engine.arguments",)),
        ("--colocate", ("rollouts.engine.python",)),
        ("python -m tinker.process --input a.jsonl --output b.jsonl", ("clawpipe process FILE --output FILE",)),
    ],
)
def test_a_name_is_found_however_it_is_written(asked, targets):
    assert meanings(asked)[0].targets == targets


def test_a_name_that_nobody_has_is_none():
    assert (meanings("nonsense"), meanings(""), meanings("x" * 10_000)) == ([], [], [])
    assert "ppo_clip_ratio" in near("ppo_clip_ratoi")


@pytest.mark.parametrize(
    ("setting", "answer"),
    [
        ("train.ppo_clip_ratio", "OpenClaw-RL's ppo_clip_ratio is train.loss.clip_low and train.loss.clip_high"),
        ("train.opd_weight", "OpenClaw-RL's opd_weight is train.combine.w_opd"),
        ("train.teacher_temperature", "OpenClaw-RL's teacher_temperature is not here"),
        ("train.num_train_epochs", "TRL's num_train_epochs is train.epochs"),
        ("rollouts.groupsize", "did you mean rollouts.group_size?"),
    ],
)
def test_a_refused_setting_is_answered_by_its_name_here(tmp_path, setting, answer):
    (tmp_path / "night.yaml").write_text("rounds: 1\n")
    with pytest.raises(ConfigError, match=re.escape(answer)):
        load_config(tmp_path / "night.yaml", [f"{setting}=1"])
