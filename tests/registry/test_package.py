import json
import pickle
import re
import shutil
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from peft import AutoPeftModelForCausalLM, LoraConfig, get_peft_model
from safetensors.numpy import load_file
from transformers import AutoModelForCausalLM

from clawpipe.core.conversation.messages import ToolSpec
from clawpipe.core.store.artifacts import Store
from clawpipe.core.store.digests import sha256_file
from clawpipe.errors import DataError
from clawpipe.learn.training.model.adapter import save_adapter
from clawpipe.model.policy.base import resolve_base
from clawpipe.model.policy.load import load_policy
from clawpipe.model.policy.spec import policy_spec
from clawpipe.model.policy.version import adapter_ref, base_ref
from clawpipe.record.registry.package import INDEX, package_digest, restore_policy, verify_package, write_package


def test_a_package_says_what_it_is(package, new_adapter):
    found = verify_package(package)
    assert found.policy == new_adapter()
    assert sorted(found.files) == ["MLmodel", "README.md", "adapter_config.json", "adapter_model.safetensors", "manifest.json"]
    assert found.tools[0].name == "stock"
    assert found.files["README.md"] == sha256_file(package / "README.md")


def test_equal_inputs_give_equal_bytes(store, new_adapter, facts, tmp_path):
    policy = new_adapter()
    for name in ("one", "two"):
        write_package(tmp_path / name, store, facts(policy))
    assert package_digest(tmp_path / "one") == package_digest(tmp_path / "two")


def test_the_order_of_a_tools_arguments_survives(store, new_adapter, facts, tmp_path):
    place = {"type": "object", "properties": {"z": {}, "a": {}}}
    nested = {"type": "object", "properties": {"to": place, "by": {"type": "string"}}}
    tools = (ToolSpec("move", "Move it.", {"what": "string", "by": "number"}), ToolSpec("send", "", nested))
    package = facts(new_adapter()).model_copy(update={"tools": tools})
    found = write_package(tmp_path / "ordered", store, package)
    assert [json.dumps(tool.parameters) for tool in found.tools] == [json.dumps(tool.parameters) for tool in tools]


def test_tools_of_older_packages_are_read(package):
    index = json.loads((package / INDEX).read_text())
    index["tools"] = [{"name": "stock", "description": "How many are left?", "parameters": {"item": "string"}}]
    (package / INDEX).write_text(json.dumps(index))
    assert verify_package(package).tools == (ToolSpec("stock", "How many are left?", {"item": "string"}),)


@pytest.mark.parametrize("tool", [{"name": "stock"}, 3, {"name": "stock", "description": "", "parameters": "{"}])
def test_an_index_with_a_damaged_tool_is_a_data_error(package, tool):
    index = json.loads((package / INDEX).read_text())
    (package / INDEX).write_text(json.dumps(index | {"tools": [tool]}))
    with pytest.raises(DataError, match="damaged"):
        verify_package(package)


def test_the_card_shows_verdict_success_and_what_it_stands_on(package, new_adapter):
    card = (package / "README.md").read_text()
    assert "**PROMOTE**" in card
    assert "66.7 %" in card  # 40 of 60
    assert new_adapter().digest in card
    assert "`stock`" in card


def test_the_card_begins_with_what_was_compared(package):
    _, _, card = (package / "README.md").read_text().partition("\n---\n")
    assert card.splitlines()[2] == "sft from tiny on 12 stored trajectories; compared with tiny on 60 held-out items."


def test_the_card_names_no_directory_of_this_machine(store, new_adapter, facts, tmp_path):
    policy = new_adapter().model_copy(update={"base_name": "/home/someone/models/tiny"})
    write_package(tmp_path / "package", store, facts(policy))
    assert "/home/someone" not in (tmp_path / "package" / "README.md").read_text()


def test_the_untrained_base_cannot_be_packaged(store, new_adapter, facts, tmp_path):
    base = new_adapter().model_copy(update={"adapter": False})
    with pytest.raises(DataError, match="untrained base"):
        write_package(tmp_path / "package", store, facts(base))


def flip(directory, name):
    data = bytearray((directory / name).read_bytes())
    data[-3] ^= 1
    (directory / name).write_bytes(data)


@pytest.mark.parametrize("name", ["adapter_model.safetensors", "adapter_config.json", "manifest.json", "README.md"])
def test_a_flipped_byte_is_found(package, name):
    flip(package, name)
    with pytest.raises(DataError, match=f"{name} is damaged"):
        verify_package(package)


def test_a_changed_index_is_found_by_its_digest(package):
    digest = package_digest(package)
    index = json.loads((package / INDEX).read_bytes())
    (package / INDEX).write_text(json.dumps(index | {"night": "another"}))
    with pytest.raises(DataError, match="not the one that was registered"):
        verify_package(package, digest)


@pytest.mark.parametrize("damage", [lambda path: path.unlink(), lambda path: path.write_bytes(path.read_bytes()[:40])])
def test_an_index_that_is_gone_or_cut_is_a_data_error(package, damage):
    damage(package / INDEX)
    with pytest.raises(DataError, match=INDEX):
        verify_package(package)


def test_a_missing_file_is_found(package):
    (package / "README.md").unlink()
    with pytest.raises(DataError, match=r"README\.md"):
        verify_package(package)


def test_a_directory_that_is_not_there_is_a_data_error(tmp_path):
    with pytest.raises(DataError, match="no model package"):
        verify_package(tmp_path / "nowhere")


@pytest.mark.parametrize("name", ["weights.bin", "model.pt", "code.py", "pickle.pkl", "no_extension"])
def test_other_kinds_of_files_are_refused(package, name):
    (package / name).write_bytes(pickle.dumps({}))
    with pytest.raises(DataError, match="not allowed"):
        verify_package(package)


def test_links_and_folders_are_refused(package, tmp_path):
    (package / "link.json").symlink_to(tmp_path)
    with pytest.raises(DataError, match="not allowed"):
        verify_package(package)
    (package / "link.json").unlink()
    (package / "folder.json").mkdir()
    with pytest.raises(DataError, match="not allowed"):
        verify_package(package)


def listed_with(package, name, content):
    """Replace a file and its hash in the index, as an attacker with write access could."""
    (package / name).write_bytes(content)
    index = json.loads((package / INDEX).read_bytes())
    index["files"][name] = sha256_file(package / name)
    (package / INDEX).write_text(json.dumps(index))


def test_a_pickle_called_safetensors_is_refused(package):
    listed_with(package, "adapter_model.safetensors", pickle.dumps([1, 2, 3]))
    with pytest.raises(DataError, match="no safetensors file"):
        verify_package(package)


def test_a_header_with_too_many_bytes_is_refused(package):
    header = json.dumps({"w": {"dtype": "F32", "shape": [1000], "data_offsets": [0, 4000]}}).encode()
    listed_with(package, "adapter_model.safetensors", struct.pack("<Q", len(header)) + header + b"\0" * 8)
    with pytest.raises(DataError, match="no safetensors file"):
        verify_package(package)


def test_other_weights_under_the_same_policy_version_are_refused(store, package, new_adapter):
    other = store.path(new_adapter(0.75))
    listed_with(package, "adapter_model.safetensors", (other / "adapter_model.safetensors").read_bytes())
    with pytest.raises(DataError, match="not those of its artifact"):
        verify_package(package)
    listed_with(package, "manifest.json", (other / "manifest.json").read_bytes())
    with pytest.raises(DataError, match="not the one that the package names"):
        verify_package(package)


def test_a_policy_version_must_follow_from_the_bytes(package):
    index = json.loads((package / INDEX).read_bytes())
    index["policy"]["policy_version"] = "0" * 16
    (package / INDEX).write_text(json.dumps(index))
    with pytest.raises(DataError, match="does not follow"):
        verify_package(package)


def test_an_adapter_of_another_base_is_refused(package):
    index = json.loads((package / INDEX).read_bytes())
    index["policy"]["base"] = "c" * 64
    (package / INDEX).write_text(json.dumps(index))
    with pytest.raises(DataError, match="does not name the base"):
        verify_package(package)


def test_an_adapter_comes_back_into_the_store_under_its_digest(store, package):
    policy = verify_package(package).policy
    shutil.rmtree(store.path(policy))
    assert restore_policy(store, package) == policy
    assert store.intact(policy)
    weights = load_file(store.path(policy) / "adapter_model.safetensors")
    assert np.array_equal(weights["lora_A"], np.full((2, 3), 0.5, dtype=np.float32))


@pytest.fixture
def trained(store):
    """A real adapter on the built-in random model, as training leaves it: its reference and its log-probs."""
    base = resolve_base("random")
    start = base_ref("random", base.digest, "pythonic", "float32")
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_pretrained(base.path, dtype=torch.float32)
    lora = LoraConfig(r=2, target_modules=["q_proj"], task_type="CAUSAL_LM", init_lora_weights=False)
    model = get_peft_model(model, lora)

    def fill(directory):
        save_adapter(model, directory, base.digest)
        return {"kind": "model", "name": "adapter", "base": base.digest, "calls": "pythonic", "dtype": "float32"}

    digest, _ = store.publish("adapter", fill)
    return adapter_ref(start, digest, [])


def test_other_tools_find_the_base_of_a_registered_adapter(store, trained, facts, tmp_path):
    write_package(tmp_path / "package", store, facts(trained))
    loaded = AutoPeftModelForCausalLM.from_pretrained(tmp_path / "package", dtype=torch.float32)
    spec = policy_spec(store, trained)
    ours = load_policy(Path(spec.base), Path(spec.adapter), "float32", torch.device("cpu"))
    ids = torch.arange(7)[None]
    with torch.no_grad():
        assert torch.equal(loaded(ids).logits, ours(ids).logits)
    config = json.loads((tmp_path / "package" / "adapter_config.json").read_text())
    assert not config["base_model_name_or_path"].startswith("sha256:")


def test_put_back_into_a_store_it_is_the_artifact_again(store, trained, facts, tmp_path):
    write_package(tmp_path / "package", store, facts(trained))
    assert restore_policy(Store(tmp_path / "elsewhere"), tmp_path / "package") == trained


def test_the_snippet_of_the_card_runs(store, trained, facts, tmp_path):
    write_package(tmp_path / "package", store, facts(trained))
    card = (tmp_path / "package" / "README.md").read_text()
    [snippet] = re.findall(r"```python\n(.*?)```", card, re.DOTALL)
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", snippet], cwd=tmp_path / "package", capture_output=True, timeout=300
    )
    assert done.returncode == 0, done.stderr.decode()
    assert b"Hello" in done.stdout


def test_the_card_names_method_settings_and_licence(store, trained, facts, tmp_path):
    write_package(tmp_path / "package", store, facts(trained))
    card = (tmp_path / "package" / "README.md").read_text()
    front = yaml.safe_load(card.split("---")[1])
    assert (front["license"], front["base_model"], front["library_name"]) == ("apache-2.0", "random", "peft")
    for line in ("| `train.method` | grpo |", "| `train.lora.rank` | 16 |", "| `rounds` | 3 |"):
        assert line in card


def test_an_adapter_that_names_another_base_is_refused(store, trained, facts, tmp_path):
    directory = tmp_path / "package"
    write_package(directory, store, facts(trained))
    config = json.loads((directory / "adapter_config.json").read_text())
    (directory / "adapter_config.json").write_text(json.dumps(config | {"base_model_name_or_path": "sha256:" + "0" * 64}))
    index = json.loads((directory / INDEX).read_text())
    index["files"]["adapter_config.json"] = sha256_file(directory / "adapter_config.json")
    (directory / INDEX).write_text(json.dumps(index))
    with pytest.raises(DataError, match="does not name the base"):
        verify_package(directory)
