from pathlib import Path

import pytest

from clawpipe.core.basics.plain_yaml import parse_yaml
from clawpipe.core.config import NightConfig, load_config
from clawpipe.errors import ConfigError, NotFoundError

SHIPPED = sorted(Path("configs").glob("*.yaml"))
NIGHTS = [*SHIPPED, *Path("configs/methods").glob("*.yaml"), *Path("configs/sizes").glob("*.yaml")]


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_every_shipped_config_is_valid(path):
    load_config(path)


def test_no_shipped_toy_registers_as_the_users_own_model():
    """What `clawpipe init` and `train` write registers under the default name."""
    toys = [config for config in map(load_config, NIGHTS) if config.environment.name != "conversations"]
    assert NightConfig().registry.model_name not in {config.registry.model_name for config in toys}


def test_the_shipped_night_on_demand_can_promote():
    """It held out 20 of the 200 conversations that start it, and compared likelihood: it held, whatever was learnt."""
    config = load_config(Path("configs/ongoing.yaml"))
    [ingest] = [one for one in parse_yaml(Path("prefect.yaml").read_text())["deployments"] if one["name"] == "ingest"]
    assert config.measure == "tool calls"
    assert config.evaluation.heldout_share * ingest["parameters"]["ready_at"] > 1.5 * config.gate.min_items


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
        ("train: {method: binary_rl}", [], r"'combine'; OpenClaw-RL's binary_rl is train.method and .*grpo, with credit: turn"),
        ("rounds: 0", [], "rounds"),
        ("- a\n- b", [], "mapping"),
        ("a: [", [], "YAML"),
        ("seed: 1", ["train.method"], "train.method"),
        ("seed: 1", ["seed.deep=1"], "seed.deep"),
        ("rollouts: null", [], "nothing to learn from"),
        ("train: {optimizer_steps: 4, batch_rows: 8}", [], "`optimizer_steps` and `batch_rows` set the same thing"),
        ("train: {batch_rows: 8, batch_tokens: 8}", [], "`batch_rows` and `batch_tokens`"),
        ("train: {warmup_steps: 8, warmup_ratio: 0.1}", [], "`warmup_steps` and `warmup_ratio`"),
        ("train: {dpo: {variant: ipo, label_smoothing: 0.1}}", [], "train.dpo.*no labels to smooth"),
        ("train: {dpo: {label_smoothing: 0.5}}", [], "train.dpo.label_smoothing"),
        ("model: {dtype: float16}", [], "float16 is not trained in.*bfloat16 takes as much memory"),
        ("environment: {train_items: 4}", [], "rollouts.items"),
        ("environment: {train_items: 1000000000}", [], "environment.train_items: .* less than or equal to 1000000"),
        ("environment: {heldout_items: 1000000000}", [], "environment.heldout_items: .* less than or equal to 1000000"),
        ("rounds: 1000000000", [], "rounds: .* less than or equal to 10000"),
        ("rollouts: {group_size: 100000}", [], "times rollouts.group_size is 3200000, and at most 1000000 fit into memory"),
        ("train: {loss: {icepop: [2.0, 0.5]}}", [], r"icepop.*\[2, 0.5\]"),
        ("train: {loss: {icepop: [0.5, 2.0], tis_cap: 2.0}}", [], "icepop.*tis_cap"),
        ("train: {method: sft, loss: {tis_cap: 2.0}}", [], "`loss.tis_cap` has no effect: sft takes no importance ratio"),
        ("train: {method: sft, loss: {opsm_delta: 0.0}}", [], "`loss.opsm_delta` has no effect"),
        ("train: {method: dpo, max_kl: 0.1}", [], "`max_kl` has no effect: dpo"),
        ("train: {max_kl: 0.1}", ["train.method=sft"], "`max_kl` has no effect: sft"),
        ("curation: {step_weight: 0.5}", ["train.method=ppo"], "`curation.step_weight` has no effect: ppo takes the score of each"),
        ("curation: {step_weight: 0.5}", ["train.method=sft"], "`curation.step_weight` has no effect: sft looks at the outcome"),
        ("curation: {step_weight: 0.5}", ["train.method=kto"], "`curation.step_weight` has no effect: kto looks at the outcome"),
        ("curation: {step_weight: 0.5}", ["train.method=opd"], "`curation.step_weight` has no effect: opd learns from hints"),
        ("curation: {step_weight: 0.5, credit: turn}", [], "`curation.step_weight` has no effect: credit turn looks at"),
        ("train: {method: dpo, loss: {entropy_coef: 0.1}}", [], "no entropy bonus"),
        ("train: {method: dpo, loss: {kl_coef: 0.1}}", [], "dpo.beta"),
        ("train: {method: combine, combine: {w_rl: 0, w_opd: 0}}", [], "both weights of `combine` are 0"),
        ("rollouts: {group_size: 1}", [], "rollouts.group_size is 1: grpo compares"),
        ("rollouts: {group_size: 1}", ["curation.credit=step"], "rollouts.group_size is 1: grpo compares"),
        ("rollouts: {group_size: 1}", ["train.method=dpo"], "rollouts.group_size is 1: dpo compares"),
        ("rollouts: {group_size: 1}", ["train.method=sft", "curation.imitate=chosen"], "rollouts.group_size is 1: sft compares"),
        ("rollouts: {group_size: 1}", ["train.method=combine", "train.combine.w_opd=0"], "group_size is 1: combine compares"),
        ("train: {kto: {desirable_weight: 0, undesirable_weight: 0}}", [], "train.kto: both weights are 0"),
        ("train: {lora: {target_modules: []}}", [], "train.lora.target_modules: no module has an empty name"),
        ("train: {lora: {target_modules: [q_proj, '']}}", [], "train.lora.target_modules: no module has an empty name"),
        ("train: {lora: {target_modules: '('}}", [], "train.lora.target_modules: '\\(' is no regular expression"),
        ("runtime: {device: gpu}", [], "runtime.device"),
        ("runtime: {device: 'cuda:first'}", [], "runtime.device"),
        ("curation: {filters: {min_turns: 3, max_turns: 2}}", [], r"nothing passes: min_turns \(3\) exceeds max_turns \(2\)"),
        ("curation: {filters: {min_score: 1, max_score: 0.5}}", [], "nothing passes: min_score"),
        ("curation: {max_tokens: 512, filters: {min_tokens: 513}}", [], "nothing passes: filters.min_tokens"),
        ("train: {learning_rate: .inf}", [], "train.learning_rate.*finite"),
        ("rollouts: {temperature: .nan}", [], "rollouts.temperature.*finite"),
        ("runtime: {step_timeout: .inf}", [], "runtime.step_timeout.*finite"),
        ("rounds: true", [], "rounds: a number is needed, not true"),
        ("train: {learning_rate: yes}", [], "train.learning_rate: a number is needed"),
        ("curation: {quotas: {}}", ["rollouts.temperature=on"], "rollouts.temperature: a number is needed"),
    ],
)
def test_a_mistake_is_named(tmp_path, text, overrides, named):
    file = tmp_path / "night.yaml"
    file.write_text(text)
    with pytest.raises(ConfigError, match=named):
        load_config(file, overrides)


@pytest.mark.parametrize(
    ("overrides", "where", "meant"),
    [
        ([], "{file}:4", "train.methd: no such setting; did you mean train.method?"),
        (["train.methd=sft"], "-o train.methd=sft", "did you mean train.method?"),
    ],
)
def test_an_unknown_setting_names_the_nearest_one_and_its_place(tmp_path, overrides, where, meant):
    file = tmp_path / "night.yaml"
    file.write_text("# a night\nseed: 1\ntrain:\n  methd: sft\n")
    with pytest.raises(ConfigError) as caught:
        load_config(file, overrides)
    assert caught.value.where == where.format(file=file)
    assert meant in caught.value.what


@pytest.mark.parametrize(
    ("override", "meant"),
    [
        ("train.rank=8", "train.lora.rank"),
        ("learning_rate=1e-4", "train.learning_rate"),
        ("trian.method=sft", "train"),
        ("rollouts.tempurature=1", "rollouts.temperature"),
        ("curation.filters.sucess_only=true", "curation.filters.success_only"),
    ],
)
def test_the_nearest_setting_may_be_in_another_block(tmp_path, override, meant):
    (tmp_path / "night.yaml").write_text("{}")
    with pytest.raises(ConfigError, match=rf"did you mean {meant}\?"):
        load_config(tmp_path / "night.yaml", [override])


def test_each_of_several_mistakes_has_its_place(tmp_path):
    file = tmp_path / "night.yaml"
    file.write_text("rounds: 0\nmodel:\n  base: random\n  dtype: float8\ncuration:\n  canaries: [a, '']\n")
    with pytest.raises(ConfigError) as caught:
        load_config(file, ["gate.alpha=7"])
    assert caught.value.where == f"{file}:1"
    for field, place in (("model.dtype", f"{file}:4"), ("curation.canaries.1", f"{file}:6"), ("gate.alpha", "-o gate.alpha=7")):
        assert f"({place})" in caught.value.what.partition(field)[2].partition(";")[0]


def test_settings_that_contradict_are_placed_at_their_block(tmp_path):
    file = tmp_path / "night.yaml"
    file.write_text("seed: 1\ntrain:\n  optimizer_steps: 4\n  batch_rows: 8\n")
    with pytest.raises(ConfigError) as caught:
        load_config(file)
    assert caught.value.where == f"{file}:2"


@pytest.mark.parametrize("label", ["no", "2026", "{date}", "[a]", "null-ish", '"quoted"'])
def test_a_text_is_taken_as_it_is_written(tmp_path, label):
    """In YAML `no` is a truth and `{date}` a mapping, which no label can be."""
    (tmp_path / "night.yaml").write_text("night: n\n")
    config = load_config(tmp_path / "night.yaml", [f"night={label}", "draw=null", "gate.min_items=7"])
    assert (config.night, config.draw, config.gate.min_items) == (label.strip('"'), None, 7)


@pytest.mark.parametrize(
    "overrides",
    [
        ["curation.credit=turn"],
        ["train.method=ppo"],
        ["trajectories=[abc]"],
        ["train.method=kto"],
        ["train.method=combine"],
        ["train.method=dpo", "preferences=[abc]"],
        ["train.method=dpo", "curation.demonstrations.share=1"],
    ],
)
def test_groups_of_one_are_allowed_without_group_comparison(tmp_path, overrides):
    (tmp_path / "night.yaml").write_text("rollouts: {group_size: 1}")
    load_config(tmp_path / "night.yaml", overrides)


def test_what_ships_is_found_from_any_directory(tmp_path, monkeypatch):
    here = load_config(Path("configs/demo.yaml"))
    monkeypatch.chdir(tmp_path)
    assert load_config(Path("configs/demo.yaml")) == here
    (tmp_path / "configs").mkdir()
    (tmp_path / "configs" / "demo.yaml").write_text("seed: 77")  # one's own goes before
    assert load_config(Path("configs/demo.yaml")).seed == 77


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(NotFoundError, match=r"none\.yaml"):
        load_config(tmp_path / "none.yaml")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("model.calls=hermes", "model.tool_call_format"),
        ("serving.artefact=merged", "serving.artifact"),
        ("train.updates=3", "train.optimizer_steps"),
        ("curation.drop_constant_groups=false", "curation.drop_zero_variance_groups"),
    ],
)
def test_names_that_ended_with_the_release_before_are_refused(tmp_path, old, new):
    (block, _, field), value = old.partition("=")[0].partition("."), old.partition("=")[2]
    file = tmp_path / "night.yaml"
    file.write_text(f"seed: 3\n{block}:\n  {field}: {value}\n")
    for given, where in (((file, []), f"{file}:3"), ((Path("configs/demo.yaml"), [old]), f"-o {old}")):
        with pytest.raises(ConfigError, match=f"{block}.{field} is called {new} since 0.2") as refused:
            load_config(*given)
        assert (refused.value.where, refused.value.fix) == (where, f"write {new}")


def test_a_stored_night_of_the_version_before_is_read():
    settings = NightConfig().settings()
    settings["model"]["calls"] = settings["model"].pop("tool_call_format")
    assert NightConfig.model_validate(settings) == NightConfig()
