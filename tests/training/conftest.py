"""Tiny models and rows for the training room."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from clawpipe.training.samples import Sample


def pytest_collection_modifyitems(items):
    # peft 0.21 reads a property that transformers 5.23 has deprecated
    for item in items:
        item.add_marker(pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing`:FutureWarning"))


@pytest.fixture(scope="session", autouse=True)
def _one_thread():
    torch.set_num_threads(1)


@pytest.fixture
def tiny_llama():
    """tiny_llama(**changes): two layers of random weights, the same every time."""

    def make(**changes):
        torch.manual_seed(0)
        sizes = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4}
        return LlamaForCausalLM(LlamaConfig(**{"vocab_size": 300, "num_key_value_heads": 2} | sizes | changes))

    return make


@pytest.fixture
def make_sample():
    """make_sample(ids, trained, ...): behaviour and advantages may be one number for all trained tokens."""

    def make(ids, trained, behaviour=-5.0, advantage=1.0, group="g", temperature=1.0, weight=1.0):
        given = {"behaviour": behaviour, "advantages": advantage}
        streams = {name: np.broadcast_to(np.asarray(value, np.float32), len(trained)).copy() for name, value in given.items()}
        return Sample(group, np.asarray(ids), np.asarray(trained), temperature, weight, streams)

    return make


@pytest.fixture
def rollouts(make_sample):
    """rollouts(groups, each, ...): two-turn rows under one preamble; some rollouts of a group begin alike."""

    def make(groups=3, each=4, seed=0, temperature=1.0):
        generator = np.random.default_rng(seed)
        preamble = generator.integers(0, 300, 12).tolist()
        rows = []
        for group in range(groups):
            question = generator.integers(0, 300, 5).tolist()
            for _ in range(each):
                answer = [*generator.integers(0, 2, 4), 9, 9, *generator.integers(0, 2, 3), 7]
                trained = [17, 18, 19, 20, 23, 24, 25]
                ids, behaviour = preamble + question + answer, generator.normal(-5.5, 0.4, 7)
                rows.append(make_sample(ids, trained, behaviour, generator.normal(), f"g{group}", temperature))
        return rows

    return make
