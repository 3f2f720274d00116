"""What no registry holds is found by its directory: a base model, or an adapter as peft writes it."""

import json
import shutil

import pytest
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import AutoModelForCausalLM

from clawpipe.errors import ConfigError, NotFoundError
from clawpipe.model.engines.embedded import EmbeddedEngine
from clawpipe.serve.serving.found import find_local

IDS = [*range(97, 123)]


@pytest.fixture
def adapter(base, tmp_path):
    """The directory of an adapter that changes much, on the model of random weights."""
    torch.manual_seed(0)
    model = get_peft_model(AutoModelForCausalLM.from_pretrained(base.path), LoraConfig(r=4, target_modules="all-linear"))
    for weight in (weight for weight in model.parameters() if weight.requires_grad):
        torch.nn.init.normal_(weight, std=0.3)
    model.save_pretrained(tmp_path / "mine")
    return tmp_path / "mine"


def renamed(adapter, base):
    config = json.loads((adapter / "adapter_config.json").read_text()) | {"base_model_name_or_path": base}
    (adapter / "adapter_config.json").write_text(json.dumps(config))


def test_an_adapter_is_served_on_the_base_that_it_names(base, adapter):
    served = find_local(str(adapter), "hermes")
    assert (served.name, served.version, served.spec.tool_call_format) == ("mine", "adapter", "hermes")
    assert not served.is_base
    engine = EmbeddedEngine(base.path, adapter, device="cpu")
    with torch.inference_mode():
        model = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(base.path), adapter)
        likely = model(input_ids=torch.tensor([IDS])).logits[0, :-1].log_softmax(-1)
    wanted = likely.gather(-1, torch.tensor(IDS[1:])[:, None])[:, 0].tolist()
    assert (served.spec.base, served.spec.adapter) == (str(base.path), str(adapter))
    assert engine.score(IDS, 1) == pytest.approx(wanted, abs=1e-4)


def test_other_weights_are_another_policy(adapter, base):
    first, again = (find_local(str(adapter), "hermes") for _ in range(2))
    assert (first.digest, first.spec.policy_version) == (again.digest, again.spec.policy_version)
    assert first.spec.policy_version != find_local(str(base.path), "hermes").spec.policy_version
    weights = adapter / "adapter_model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-4] + b"\0\0\0\1")
    other = find_local(str(adapter), "hermes")
    assert other.digest != first.digest
    assert other.spec.policy_version != first.spec.policy_version


def test_a_base_beside_the_adapter_is_found(adapter, base, tmp_path):
    shutil.copytree(base.path, tmp_path / "base")
    renamed(adapter, "../base")
    assert find_local(str(adapter), "hermes").spec.base == str(tmp_path / "base")


@pytest.mark.parametrize("named", [None, "", f"sha256:{'a' * 64}"])
def test_an_adapter_without_a_base_is_refused(adapter, named):
    renamed(adapter, named)
    with pytest.raises(ConfigError, match="does not say where its base model is"):
        find_local(str(adapter), "hermes")


def test_a_base_that_is_gone_is_named(adapter, tmp_path):
    renamed(adapter, str(tmp_path / "gone"))
    with pytest.raises(NotFoundError, match="gone"):
        find_local(str(adapter), "hermes")


def test_pickled_weights_are_refused(adapter):
    (adapter / "adapter_model.safetensors").rename(adapter / "adapter_model.bin")
    with pytest.raises(ConfigError, match=r"no adapter_model.safetensors"):
        find_local(str(adapter), "hermes")
