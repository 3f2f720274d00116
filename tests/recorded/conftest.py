"""A tiny policy of random weights, what it samples, and a worker that can be asked about it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import torch

from clawpipe.core.config.night import Runtime
from clawpipe.core.config.training import Lora
from clawpipe.core.contracts.schema import schema_of
from clawpipe.core.conversation.messages import Message
from clawpipe.core.store.artifacts import Store
from clawpipe.core.store.datasets import publish_dataset
from clawpipe.core.store.refs import DatasetRef, ModelRef
from clawpipe.learn.training.model.adapter import attach_trainable, save_adapter
from clawpipe.model.engines.base import Sampling
from clawpipe.model.engines.embedded import EmbeddedEngine
from clawpipe.model.policy.base import resolve_base
from clawpipe.model.policy.load import load_base
from clawpipe.model.policy.renderer import Renderer
from clawpipe.model.policy.version import adapter_ref, base_ref
from clawpipe.model.policy.vocabulary import load_tokenizer
from clawpipe.play.workers.pool import WorkerPool

Row = dict[str, Any]
BASE = "random"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    # peft 0.21 reads a property that transformers 5.23 has deprecated
    for item in items:
        item.add_marker(pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing`:FutureWarning"))


@pytest.fixture(scope="module")
def pool(quick_children: None, tmp_path_factory: pytest.TempPathFactory):
    with WorkerPool(Runtime(device="cpu", workers=1), tmp_path_factory.mktemp("logs")) as pool:
        yield pool


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


@pytest.fixture(scope="session")
def base() -> ModelRef:
    return base_ref(BASE, resolve_base(BASE).digest, "pythonic", "float32")


@pytest.fixture
def trained(store: Store, base: ModelRef) -> ModelRef:
    """Another policy: the base with an adapter that changes what it says, in the store."""
    torch.manual_seed(1)
    model = attach_trainable(load_base(resolve_base(BASE).path, "float32", torch.device("cpu")), Lora(rank=4, alpha=8))
    for name, parameter in model.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(parameter, std=0.3)

    def fill(directory: Path) -> dict[str, Any]:
        save_adapter(model, directory / "new", base.digest)
        for file in (directory / "new").iterdir():
            file.rename(directory / file.name)
        (directory / "new").rmdir()
        return {"kind": "model", "name": "adapter", "base": base.base, "calls": base.tool_call_format, "dtype": base.dtype}

    digest, _ = store.publish("adapter", fill)
    return adapter_ref(base, digest, ())


@dataclass(frozen=True)
class Talks:
    """Conversations of one turn that the base has sampled at a temperature."""

    engine: EmbeddedEngine
    renderer: Renderer
    version: str

    def sampled(self, count: int, temperature: float, **fields: Any) -> list[Row]:
        """Rows of `trajectories` with log-probs at the sampling temperature."""
        prompts = [self.renderer.prompt([Message("user", f"say {number}")]) for number in range(count)]
        turns = self.engine.begin(prompts).sample(
            {row: row for row in range(count)}, Sampling(temperature, 12, self.renderer.stop_ids)
        )
        return [self._row(number, prompts[number], turns[number], temperature) | fields for number in range(count)]

    def raw(self, row: Row) -> list[float]:
        """Log-probs of the row's tokens at temperature 1, as most servers report them."""
        start = row["prompt_tokens"]
        return [0.0] * start + self.engine.score(row["token_ids"], start)

    def _row(self, number: int, prompt: list[int], turn: Any, temperature: float) -> Row:
        size = len(prompt), len(prompt) + len(turn.ids)
        said = [Message("user", f"say {number}"), self.renderer.parse(turn.ids, 0)]
        return {
            "trajectory_id": f"t{number}",
            "item_id": f"i{number}",
            "group_id": f"i{number}/{self.version}",
            "rollout_index": 0,
            "environment": "imported",
            "split": "train",
            "source": "imported",
            "policy_version": self.version,
            "renderer_digest": "r",
            "messages": [message.as_dict() for message in said],
            "token_ids": [*prompt, *turn.ids],
            "loss_mask": [False] * size[0] + [True] * len(turn.ids),
            "logprobs": [0.0] * size[0] + turn.logprobs,
            "prompt_tokens": size[0],
            "turns": [{"start": size[0], "end": size[1], "kind": "main", "finish_reason": "stop"}],
            "temperature": temperature,
            "seed": 0,
            "finish_reason": "stop",
            "tokens": "recorded",
            "logprobs_kind": "tempered",
        }


@pytest.fixture(scope="session")
def talks(base: ModelRef) -> Talks:
    path = resolve_base(BASE).path
    return Talks(EmbeddedEngine(path, None), Renderer(load_tokenizer(path), "pythonic", ()), base.policy_version)


@pytest.fixture
def published(store: Store) -> Callable[..., DatasetRef]:
    """`published(rows)`: a dataset of trajectories; `published(rows, "samples")`: of samples with the same tokens."""

    def publish(rows: list[Row], name: str = "trajectories") -> DatasetRef:
        if name == "samples":
            rows = [row | {"advantages": [0.0] * len(row["token_ids"]), "weight": 1.0, "turns": None} for row in rows]
        return publish_dataset(store, name, [pa.Table.from_pylist(rows, schema_of(name))])

    return publish
