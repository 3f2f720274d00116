"""The check that a night begins with, in the processes that a night runs."""

import importlib
import json
import sys
from pathlib import Path

import pytest

from clawpipe.core.config.night import Model, Runtime
from clawpipe.core.config.training import Train
from clawpipe.core.system.progress import reporting_to
from clawpipe.errors import ConfigError, DataError
from clawpipe.learn.evaluation.model_check import check_model
from clawpipe.model.policy.spec import untrained_spec
from clawpipe.play.workers.pool import WorkerPool

RUNTIME = Runtime(device="cpu", workers=1, train_threads=1)
pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("quick_children")]


@pytest.fixture
def check(tmp_path):
    """check(base, ...) returns the agreement figures of a base model."""

    def run(base, train=Train(), **settings):  # noqa: B008
        with WorkerPool(RUNTIME, tmp_path / "logs") as pool:
            return check_model(pool, tmp_path / "check", untrained_spec(Model(base=str(base), **settings)), train, RUNTIME)

    return run


@pytest.fixture
def families(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "benchmarks"))
    yield importlib.import_module("families")
    sys.modules.pop("families", None)


class Told(list):
    """What a step reported while it ran."""

    def progress(self, done: float, total: float, note: str = "") -> None:
        self.append((done, total, note))

    def update(self, metrics: object) -> None: ...


def test_a_check_says_what_it_loads(check):
    """It was mute for minutes."""
    with reporting_to(told := Told()):
        check("random")
    assert told == [(0, 2, "loading engine"), (1, 2, "loading trainer")]


@pytest.mark.parametrize("train", [Train(), Train(adapter="full", method="ppo"), None])
def test_engine_and_trainer_pass_however_the_policy_is_trained(check, train):
    engine, trainer = check("random", train)
    assert (engine.part, trainer.part) == ("engine", "trainer")
    assert (engine.layout, trainer.layout) == ("packed", "packed")
    assert max(engine.largest, trainer.largest) < 1e-3


@pytest.mark.parametrize(
    ("train", "settings"),
    [(Train(), {"dtype": "bfloat16"}), (Train(), {"quantization": "nf4"}), (None, {"dtype": "bfloat16"})],
)
def test_what_a_precision_or_fewer_bits_cost_is_allowed(check, train, settings):
    engine, trainer = check("random", train, **settings)
    assert engine.layout == trainer.layout == "packed"


def test_a_model_whose_log_probs_cannot_be_right_is_refused(check, families, tmp_path):
    with pytest.raises(DataError, match=r"engine's log-probs are \S+ nats off the model's own forward") as refused:
        check(families.write_model("bert", tmp_path / "base"))
    assert refused.value.where == str(tmp_path / "base")


def test_a_model_that_cannot_be_loaded_is_refused_in_one_line(check, families, tmp_path):
    base = families.write_model("llama", tmp_path / "base")
    settings = json.loads((base / "config.json").read_bytes())
    (base / "config.json").write_text(json.dumps(settings | {"model_type": "no_such_family"}))
    with pytest.raises(DataError, match="the engine cannot run this model: ValueError") as refused:
        check(base)
    assert "\n" not in refused.value.what


def test_a_model_that_takes_no_adapter_is_found_before_rollouts(check):
    with pytest.raises(ConfigError, match=r"train\.lora\.target_modules: no adapter can be put there: .*no_such_layer"):
        check("random", Train.model_validate({"lora": {"target_modules": ["no_such_layer"]}}))
