from pathlib import Path

import pytest

from clawpipe.config import load_config
from clawpipe.errors import ConfigError, NotFoundError

SHIPPED = sorted(Path("configs").glob("*.yaml"))


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_every_shipped_config_is_valid(path):
    load_config(path)


def test_an_override_wins(tmp_path):
    file = tmp_path / "night.yaml"
    file.write_text("train: {method: grpo, learning_rate: 1e-4}\n")
    config = load_config(file, ["train.method=sft", "train.lora.rank=4", "rollouts=null", "trajectories=[abc]"])
    assert (config.train.method, config.train.lora.rank, config.rollouts, config.trajectories) == ("sft", 4, None, ("abc",))
    assert config.train.learning_rate == 1e-4


@pytest.mark.parametrize(
    ("text", "overrides", "named"),
    [
        ("train: {methd: sft}", [], "train.methd"),
        ("train: {method: dance}", [], "train.method"),
        ("rounds: 0", [], "rounds"),
        ("- a\n- b", [], "mapping"),
        ("a: [", [], "YAML"),
        ("seed: 1", ["train.method"], "train.method"),
        ("seed: 1", ["seed.deep=1"], "seed.deep"),
        ("rollouts: null", [], "nothing to learn from"),
        ("train: {updates: 4, batch_rows: 8}", [], "`updates` and `batch_rows` say the same thing twice"),
        ("train: {batch_rows: 8, batch_tokens: 8}", [], "`batch_rows` and `batch_tokens`"),
        ("train: {warmup_steps: 8, warmup_ratio: 0.1}", [], "`warmup_steps` and `warmup_ratio`"),
        ("train: {dpo: {variant: ipo, label_smoothing: 0.1}}", [], "train.dpo.*no labels to smooth"),
        ("train: {dpo: {label_smoothing: 0.5}}", [], "train.dpo.label_smoothing"),
        ("model: {dtype: float16}", [], "float16 is not trained in.*bfloat16 takes as much memory"),
        ("environment: {train_items: 4}", [], "rollouts.items"),
    ],
)
def test_a_mistake_is_named(tmp_path, text, overrides, named):
    file = tmp_path / "night.yaml"
    file.write_text(text)
    with pytest.raises(ConfigError, match=named):
        load_config(file, overrides)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(NotFoundError, match=r"none\.yaml"):
        load_config(tmp_path / "none.yaml")
