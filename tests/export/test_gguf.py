"""A policy as GGUF: another reader, that of transformers, gets the same model back, and what cannot be written is refused first."""

from __future__ import annotations

import json
from pathlib import Path

import gguf
import pytest
import torch
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import (
    AutoTokenizer,
    LlamaConfig,
    MistralConfig,
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen3Config,
)
from transformers.models.auto.modeling_auto import AutoModelForCausalLM

from clawpipe.core.config.training import Lora
from clawpipe.core.conversation.messages import Message
from clawpipe.errors import ConfigError, TrainingError
from clawpipe.learn.training.model.adapter import attach_trainable, save_adapter
from clawpipe.model.policy.base import resolve_base
from clawpipe.model.policy.load import load_base
from clawpipe.model.policy.spec import PolicySpec
from clawpipe.model.policy.tiny import SPECIALS, byte_tokenizer
from clawpipe.model.policy.version import base_ref
from clawpipe.serve.export.files import write_files
from clawpipe.serve.export.gguf.policy import write_measured
from clawpipe.serve.export.gguf.vocabulary import vocabulary_of
from clawpipe.serve.export.gguf.write import read_back, require_writable, write_gguf
from clawpipe.serve.export.ollama import Episode

CPU = torch.device("cpu")
IDS = torch.arange(20, 120)[None]
TEXT = "the iron kettle in the harbour of Lisbon, 14.50 for the parcel and the kettle"
SIZES = {
    "vocab_size": 320,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
}
LONG = {
    "rope_type": "llama3",
    "rope_theta": 10000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
CONFIGS = {
    "llama": LlamaConfig(**SIZES, rope_parameters={"rope_type": "default", "rope_theta": 5000.0}),
    "llama-tied-with-biases": LlamaConfig(**SIZES, tie_word_embeddings=True, attention_bias=True, mlp_bias=True),
    "llama-long-context": LlamaConfig(**SIZES, rope_parameters=LONG),
    "llama-wide-heads": LlamaConfig(**SIZES, head_dim=32, rms_norm_eps=1e-3),
    "mistral": MistralConfig(**SIZES, sliding_window=None),
    "qwen2": Qwen2Config(**SIZES),
    "qwen2-tied": Qwen2Config(**SIZES, tie_word_embeddings=True),
    "qwen3": Qwen3Config(**SIZES, head_dim=32),
}


def words() -> PreTrainedTokenizerFast:
    """A byte-level BPE with merges."""
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=300, special_tokens=list(SPECIALS), initial_alphabet=alphabet, show_progress=False)
    made.train_from_iterator([TEXT] * 4, trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=made, eos_token=SPECIALS[1], pad_token=SPECIALS[2], chat_template="{{ messages[0]['content'] }}"
    )


@pytest.fixture
def written(tmp_path):
    """written(config): the directory of a model of random weights, none of which is 0 or 1."""

    def make(config, tokenizer=None) -> Path:
        torch.manual_seed(0)
        model = AutoModelForCausalLM.from_config(config)
        for name, weight in model.named_parameters():
            torch.nn.init.normal_(weight, mean=float("norm" in name), std=0.15)
        model.save_pretrained(tmp_path / "base")
        (tokenizer or words()).save_pretrained(tmp_path / "base")
        return tmp_path / "base"

    return make


def likely(model):
    with torch.inference_mode():
        return model(input_ids=IDS).logits.log_softmax(-1)


def exported(base: Path, form, calls="hermes") -> Path:
    write_gguf(base, form, base.parent, "shop version 3", calls)
    return base.parent


@pytest.mark.parametrize("name", CONFIGS)
def test_transformers_reads_the_same_model_back(written, name):
    base = written(CONFIGS[name])
    model = load_base(base, "float32", CPU)
    found = likely(read_back(exported(base, "gguf-f16"), model.config, CPU))
    assert (found - likely(model)).abs().max() < 0.05  # rounding to 16 bits; a tensor in another's place moves it by 1 and more


@pytest.mark.parametrize(("form", "near", "bits"), [("gguf-q8_0", 0.005, 8.5), ("gguf-q4_1", 0.3, 5.0)])
@pytest.mark.parametrize("name", ["llama", "qwen3"])
def test_fewer_bits_are_a_little_further_away(written, name, form, near, bits):
    base = written(CONFIGS[name])
    model = load_base(base, "float32", CPU)
    place = exported(base, form)
    wanted, found = likely(model), likely(read_back(place, model.config, CPU))
    assert 0 < (wanted.exp() * (wanted - found)).sum(-1).mean() < near
    for tensor in gguf.GGUFReader(place / "model.gguf").tensors:
        held = 8.5 if tensor.name in ("token_embd.weight", "output.weight") else bits
        wide = len(tensor.shape) == 1  # vectors keep their 32 bits
        assert tensor.n_bytes * 8 == tensor.n_elements * (32 if wide else held)


def test_rows_of_a_width_without_whole_blocks_keep_16_bits(written):
    base = written(LlamaConfig(**SIZES | {"intermediate_size": 72}))
    kinds = {tensor.name: tensor.tensor_type.name for tensor in gguf.GGUFReader(exported(base, "gguf-q4_1") / "model.gguf").tensors}
    assert kinds["blk.0.ffn_down.weight"] == "F16"
    assert kinds["blk.0.ffn_up.weight"] == "Q4_1"


def test_the_tokenizer_is_read_back(written):
    base = written(CONFIGS["llama"])
    place = exported(base, "gguf-f16")
    read, own = AutoTokenizer.from_pretrained(place, gguf_file="model.gguf"), words()
    for text in (TEXT, "Grüße, 57 mugs!  \n\n it's", "<|im_start|>user\nhi<|im_end|>"):
        assert read(text)["input_ids"] == own(text)["input_ids"]
    assert (read.eos_token, read.pad_token, read.chat_template) == (SPECIALS[1], SPECIALS[2], own.chat_template)
    fields = gguf.GGUFReader(place / "model.gguf").fields
    assert fields["tokenizer.ggml.pre"].contents() == "gpt-2"
    assert fields["tokenizer.ggml.eot_token_id"].contents() == own.convert_tokens_to_ids("<|im_end|>")
    tokens, kinds = (fields[f"tokenizer.ggml.{name}"].contents() for name in ("tokens", "token_type"))
    assert tokens[-1] == "[PAD319]"
    assert (kinds[0], kinds[100], kinds[-1]) == (3, 1, 5)  # control, normal, unused
    assert fields["general.name"].contents() == "shop version 3"


QWEN2 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
LLAMA3 = QWEN2.replace(r"|\p{N}|", r"|\p{N}{1,3}|")


def split_by(pattern: str) -> pre_tokenizers.PreTokenizer:
    split = pre_tokenizers.Split(Regex(pattern), "isolated")
    return pre_tokenizers.Sequence([split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


DIGITS = pre_tokenizers.Sequence([pre_tokenizers.Digits(True), pre_tokenizers.ByteLevel(add_prefix_space=False)])
SPLITS = [
    (split_by(QWEN2), False, "qwen2"),
    (split_by(LLAMA3), True, "llama-bpe"),
    (split_by(LLAMA3), False, "smaug-bpe"),
    (DIGITS, False, "smollm"),
]


@pytest.mark.parametrize(("split", "whole", "name"), SPLITS)
def test_a_way_to_split_text_has_llama_cpps_name(split, whole, name):
    tokenizer = changed(pre_tokenizer=split, normalizer=normalizers.NFC())
    tokenizer.backend_tokenizer.model.ignore_merges = whole
    assert vocabulary_of(tokenizer, 320, "here").split == name


def changed(**parts) -> PreTrainedTokenizerFast:
    tokenizer = words()
    for part, value in parts.items():
        setattr(tokenizer.backend_tokenizer, part, value)
    return tokenizer


@pytest.mark.parametrize(
    ("tokenizer", "why"),
    [
        (byte_tokenizer, "no merges"),
        (lambda: changed(pre_tokenizer=split_by(r"\p{L}+|.")), "llama.cpp's name is not known here"),
        (lambda: changed(pre_tokenizer=pre_tokenizers.ByteLevel(add_prefix_space=True)), "llama.cpp's name is not known here"),
        (lambda: changed(pre_tokenizer=pre_tokenizers.ByteLevel(False, use_regex=False)), "llama.cpp's name is not known here"),
        (lambda: changed(normalizer=normalizers.Lowercase()), "rewrites text"),
        (lambda: changed(decoder=decoders.ByteFallback()), "no byte-level BPE"),
    ],
)
def test_a_tokenizer_that_would_be_read_otherwise_is_refused(written, tokenizer, why):
    with pytest.raises(ConfigError, match=why):
        require_writable(written(CONFIGS["llama"], tokenizer()))


STRETCHED = {"rope_type": "linear", "rope_theta": 1e4, "factor": 2.0}
REFUSED = [
    (Qwen2Config(**SIZES, use_sliding_window=True, sliding_window=8, max_window_layers=0), "sliding window"),
    (MistralConfig(**SIZES, sliding_window=8), "sliding window"),
    (Qwen3Config(**SIZES, attention_bias=True), "biases in its attention"),
    (LlamaConfig(**SIZES, hidden_act="gelu"), "the activation 'gelu'"),
    (LlamaConfig(**SIZES, rope_parameters=STRETCHED), "positions of the kind 'linear'"),
]


@pytest.mark.parametrize(("config", "why"), REFUSED)
def test_settings_that_the_file_cannot_hold_are_refused(written, config, why):
    with pytest.raises(ConfigError, match=why) as error:
        require_writable(written(config))
    assert "export it merged" in str(error.value)


def test_an_unknown_family_is_refused_by_name(written):
    base = written(CONFIGS["llama"])
    config = json.loads((base / "config.json").read_text()) | {"model_type": "gemma"}
    (base / "config.json").write_text(json.dumps(config))
    with pytest.raises(ConfigError, match=r"family 'gemma' cannot be written .*llama, mistral, qwen2, qwen3"):
        require_writable(base)


def test_weights_beyond_16_bits_are_refused(written):
    base = written(CONFIGS["llama"])
    model = load_base(base, "float32", CPU)
    model.model.layers[1].mlp.down_proj.weight.data[0, 0] = 1e6
    model.save_pretrained(base)
    with pytest.raises(TrainingError, match=r"'model.layers.1.mlp.down_proj.weight' is not finite in F16"):
        exported(base, "gguf-f16")


@pytest.fixture
def spec(written, tmp_path):
    """A policy: a Llama with an adapter that changes much."""
    base = written(CONFIGS["llama-tied-with-biases"])
    torch.manual_seed(1)
    model = attach_trainable(load_base(base, "float32", CPU), Lora(rank=4, alpha=8))
    for weight in (weight for weight in model.parameters() if weight.requires_grad):
        torch.nn.init.normal_(weight, std=0.3)
    save_adapter(model, tmp_path / "adapter", "b" * 64)
    places = {"base": str(base), "adapter": str(tmp_path / "adapter")}
    return PolicySpec(**places, dtype="bfloat16", tool_call_format="hermes", policy_version="v")


def test_an_adapter_is_in_the_file(spec, tmp_path):
    (tmp_path / "out").mkdir()
    distance, left_out = write_measured(spec, "gguf-f16", tmp_path / "out", Episode())
    assert distance["mean"] < 0.01
    assert left_out == ()
    assert sorted(file.name for file in (tmp_path / "out").iterdir()) == ["Modelfile", "model.gguf"]


def test_a_file_that_says_something_else_is_refused(spec, tmp_path, monkeypatch):
    def forget(base, adapter, dtype, directory):
        load_base(base, dtype, CPU).save_pretrained(directory)
        words().save_pretrained(directory)

    monkeypatch.setattr("clawpipe.serve.export.gguf.policy.merge", forget)
    (tmp_path / "out").mkdir()
    with pytest.raises(TrainingError, match=r"nats off the policy's"):
        write_measured(spec, "gguf-q4_1", tmp_path / "out", Episode())


@pytest.fixture
def policy(written):
    """A base of random weights as a policy."""
    base = written(CONFIGS["qwen2"])
    return base_ref(str(base), resolve_base(str(base)).digest, "hermes", "float32")


def test_an_export_is_a_directory_that_ollama_takes(store, policy, tmp_path):
    episode = Episode("shop version 3", preamble=(Message("system", "Be brief."),))
    found = write_files(store, policy, "gguf-q8_0", tmp_path / "out", episode)
    assert 0 < found.distance["mean"] < 0.1
    assert sorted(file.name for file in (tmp_path / "out").iterdir()) == ["Modelfile", "model.gguf"]
    assert 'SYSTEM """Be brief."""' in (tmp_path / "out" / "Modelfile").read_text()


def test_what_cannot_be_written_is_refused_before_any_work(store, base, tmp_path, monkeypatch):
    monkeypatch.setattr("clawpipe.serve.export.gguf.policy.write_measured", lambda *_: pytest.fail("it began"))
    policy = base_ref("random", base.digest, "pythonic", "float32")
    with pytest.raises(ConfigError, match="no merges"):
        write_files(store, policy, "gguf-f16", tmp_path / "out")
    assert list(tmp_path.glob("*out*")) == []
