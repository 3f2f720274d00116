"""Bases whose weights are at a service: which settings go with them, and what makes another base."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from clawpipe.core.config.model import Model
from clawpipe.core.config.night import NightConfig
from clawpipe.core.store.digests import canonical
from clawpipe.errors import ConfigError
from clawpipe.learn.training.backends import require_backend
from clawpipe.model.policy.base import copy_companions, resolve_base
from clawpipe.model.policy.spec import origin_of
from clawpipe.model.policy.version import base_ref

THERE = {"name": "tinker", "model": "Qwen/Qwen3-8B"}
ROLLOUTS = {"temperature": 1.0, "engine": THERE}
TRAIN = {"backend": THERE, "lora": {"alpha": 32}, "loss": {"dual_clip": None}}


def night(base: str = "random", rollouts: object = ROLLOUTS, train: object = TRAIN, **more: object) -> NightConfig:
    model = {"base": base, "elsewhere": "Qwen/Qwen3-8B"}
    return NightConfig.model_validate({"model": model, "rollouts": rollouts, "train": train, **more})


@pytest.fixture
def known(tmp_path: Path) -> Path:
    """A directory with the config and the tokenizer of a tiny base."""
    copy_companions(resolve_base("random").path, tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    "given",
    [
        {"rollouts": {"temperature": 1.0}},
        {"rollouts": None, "trajectories": ["x"]},
        {"train": {"lora": {"alpha": 32}}},
        {"train": TRAIN | {"backend": {"name": "tinker", "model": "Qwen/Qwen3-4B"}}},
        {"rollouts": {"temperature": 1.0, "engine": {"name": "tinker", "model": "other"}}},
        {"train": TRAIN | {"backend": {"name": "fireworks", "model": "Qwen/Qwen3-8B"}}},
        {"rollouts": {"temperature": 1.0, "engine": {"name": "vllm", "url": "http://localhost:1", "model": "Qwen/Qwen3-8B"}}},
    ],
)
def test_engine_and_backend_are_at_the_same_model(given):
    with pytest.raises(ValidationError, match=r"base's weights are at a service, as Qwen/Qwen3-8B|samples what was trained there"):
        night(**given)


def test_it_is_sampled_at_temperature_one():
    with pytest.raises(ValidationError, match=r"at temperature 1 alone: set rollouts\.temperature to 1"):
        night(rollouts=ROLLOUTS | {"temperature": 0.7})


def test_config_and_tokenizer_are_enough_and_decide_the_digest(known):
    first, again = (resolve_base(str(known), "Qwen/Qwen3-8B") for _ in range(2))
    assert first.digest == again.digest
    assert resolve_base(str(known), "Qwen/Qwen3-4B").digest != first.digest
    (known / "model.safetensors").write_bytes(b"whatever lies here")
    assert resolve_base(str(known), "Qwen/Qwen3-8B").digest == first.digest
    (known / "tokenizer_config.json").write_text("{}")
    assert resolve_base(str(known), "Qwen/Qwen3-8B").digest != first.digest
    (known / "config.json").unlink()
    with pytest.raises(ConfigError, match=r"no config\.json"):
        resolve_base(str(known), "Qwen/Qwen3-8B")


def test_a_base_that_is_here_is_read_as_before(known):
    with pytest.raises(ConfigError, match="no safetensors weights"):
        resolve_base(str(known))
    assert "elsewhere" not in Model(base="random").result_fields()
    assert "elsewhere" in Model(base="random", elsewhere="there").result_fields()


def test_a_path_at_the_service_is_a_place_and_no_content():
    ref = base_ref("b", "digest", "pythonic", "float32", elsewhere="there")
    moved = ref.model_copy(update={"remote": "tinker://run/sampler_weights/adapter"})
    assert canonical(moved) == canonical(ref)


def test_its_origin_is_the_name_there(known):
    origin = origin_of(str(known), "Qwen/Qwen3-8B")
    assert origin
    assert (origin.title, origin.location, origin.licence) == ("Qwen/Qwen3-8B", "Qwen/Qwen3-8B", "other")


def test_what_needs_the_weights_is_refused_in_one_line(monkeypatch):
    pytest.importorskip("tinker")
    monkeypatch.setenv("TINKER_API_KEY", "tml-x")
    require_backend(night())
    require_backend(night(train=TRAIN | {"method": "sft"}))
    for train, policy in (({"method": "dpo"}, "reference"), ({"loss": {"kl_coef": 0.1, "dual_clip": None}}, "reference")):
        with pytest.raises(
            ConfigError, match=f"the base's weights are elsewhere, and the log-probs of the {policy} policy"
        ) as caught:
            require_backend(night(train=TRAIN | train))
        assert "\n" not in caught.value.what
    with pytest.raises(ConfigError, match="recorded log-probs are compared with them here"):
        require_backend(night(trajectories=["stored"]))
