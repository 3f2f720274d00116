"""A base model that has changed since its name was resolved is not loaded; and several are loaded at once."""

from __future__ import annotations

import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from clawpipe.core.store import digests
from clawpipe.errors import DataError
from clawpipe.model.policy.base import resolve_base, verify_base
from clawpipe.model.policy.load import load_base
from clawpipe.model.policy.vocabulary import load_tokenizer

CPU = torch.device("cpu")


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """Return a user's directory with the random model."""
    copy = tmp_path / "mine"
    shutil.copytree(resolve_base("random").path, copy, ignore=shutil.ignore_patterns("digest.json"))
    return copy


def flip(file: Path) -> None:
    """Change the file's last byte, but neither its size nor its modification time."""
    times, content = file.stat(), bytearray(file.read_bytes())
    content[-2] ^= 1
    file.write_bytes(content)
    os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))


@pytest.mark.parametrize("name", ["model.safetensors", "config.json", "tokenizer.json"])
def test_a_file_that_changed_behind_its_time_is_not_loaded(model: Path, name: str):
    digest = resolve_base(str(model)).digest
    load_base(model, "float32", CPU)  # in the same process, and whole
    flip(model / name)
    assert resolve_base(str(model)).digest == digest  # what the model was
    with pytest.raises(DataError, match="has changed") as failure:
        load_base(model, "float32", CPU)
    assert (failure.value.exit_code, failure.value.where) == (65, str(model / name))
    if name == "tokenizer.json":
        with pytest.raises(DataError, match="has changed"):
            load_tokenizer(model)
    flip(model / name)
    load_base(model, "float32", CPU)


def test_a_file_that_is_gone_is_missed(model: Path):
    resolve_base(str(model))
    (model / "generation_config.json").unlink()
    with pytest.raises(DataError, match="has changed"):
        verify_base(model)


def test_a_change_that_was_meant_is_another_model(model: Path):
    before = resolve_base(str(model)).digest
    flip(model / "model.safetensors")
    (model / "model.safetensors").touch()
    assert resolve_base(str(model)).digest != before
    load_base(model, "float32", CPU)


def test_a_process_reads_the_weights_once(model: Path, monkeypatch: pytest.MonkeyPatch):
    resolve_base(str(model))
    read: list[str] = []
    monkeypatch.setattr(digests, "sha256_file", lambda path: read.append(path.name))
    verify_base(model)
    load_tokenizer(model)
    assert read == []


def test_a_directory_without_a_record_is_taken_as_it_is(model: Path):
    verify_base(model)
    load_base(model, "float32", CPU)


def test_models_that_threads_load_at_once_stay_tied(tmp_path: Path):
    """transformers replaces its tying of weights while it loads, and two loads at once could leave it replaced."""
    sizes = {"vocab_size": 64, "hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = AutoConfig.for_model("llama", **sizes, tie_word_embeddings=True)
    AutoModelForCausalLM.from_config(config).save_pretrained(tmp_path)
    with ThreadPoolExecutor(4) as threads:
        models = list(threads.map(lambda _: load_base(tmp_path, "float32", CPU), range(12)))
    assert all(model.get_input_embeddings().weight is model.get_output_embeddings().weight for model in models)
