"""Tiny models and rows for the training room."""

from __future__ import annotations

import contextlib
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM, TrainingArguments

from clawpipe.core.config.training import Lora, Loss, Opd, Train
from clawpipe.core.contracts.schema import schema_of
from clawpipe.core.store.datasets import write_parquet
from clawpipe.learn.training.checkpoint.files import Checkpoints
from clawpipe.learn.training.data.samples import Sample
from clawpipe.learn.training.losses.batch import PolicyObjective
from clawpipe.learn.training.request import TrainRequest
from clawpipe.learn.training.run import train
from clawpipe.learn.training.trainers.base import PackDataset, PackedTrainer, Rhythm

QUICK = Train(
    optimizer_steps=3,
    epochs=2,
    pack_tokens=64,
    learning_rate=1e-3,
    checkpoint_seconds=1e-6,
    lora=Lora(rank=4, alpha=8, dropout=0.1),
    opd=Opd(top_k=4, clip=1.0),
)


def pytest_collection_modifyitems(items):
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(pytest.mark.trains)
        # peft 0.21 reads a property that transformers 5.23 has deprecated
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


@pytest.fixture
def fit(tmp_path):
    """fit(model, samples, plan, loss, ...): train; the metrics of each update. Further options are those of `trainer`, a class."""

    def run(
        model,
        samples,
        plan,
        loss=Loss(),  # noqa: B008
        learning_rate=1e-3,
        max_grad_norm=1.0,
        share=True,
        trainer=None,
        distil=0.0,
        critic=None,
        **options,
    ):
        arguments = TrainingArguments(
            output_dir=str(tmp_path / "work"),
            use_cpu=True,
            per_device_train_batch_size=1,
            gradient_accumulation_steps=len(plan[0]),
            num_train_epochs=1,
            train_sampling_strategy="sequential",
            learning_rate=learning_rate,
            lr_scheduler_type="constant",
            optim="adamw_torch",
            max_grad_norm=max_grad_norm,
            logging_steps=1,
            logging_nan_inf_filter=False,
            save_strategy="no",
            remove_unused_columns=False,
            dataloader_pin_memory=False,
            report_to="none",
            disable_tqdm=True,
        )
        checkpoints = Checkpoints(tmp_path / "checkpoints", {})
        make = trainer or partial(PackedTrainer, objective=PolicyObjective(loss, distil, critic))
        trainer = make(model, arguments, PackDataset(samples, plan, share), checkpoints, Rhythm(), **options)
        trainer.train()
        return [entry for entry in trainer.state.log_history if "loss" in entry]

    return run


@pytest.fixture
def request_for(tmp_path, tiny_llama):
    """request_for(name, train={...}, ...): a request on a tiny model and 16 two-turn rows in four groups.

    `train` changes the settings, other names the request. Its output and work lie in a directory called `name`. Token
    scores lie beside the samples; the first rollout of each group has no hint.
    """
    tiny_llama().save_pretrained(tmp_path / "base")
    files = _write_rows(tmp_path)

    def make(name, train=None, **changes):
        facts = {
            "samples": files[:1],
            "token_scores": files[1:],
            "base": str(tmp_path / "base"),
            "base_digest": "ab12",
            "config": Train.model_validate(QUICK.model_dump() | (train or {})),
            "temperature": 0.8,
            "seed": 3,
            "device": "cpu",
            "threads": 1,
            "output": str(tmp_path / name / "outcome"),
        }
        (tmp_path / name).mkdir(exist_ok=True)
        return TrainRequest(**(facts | changes))

    return make


def _write_rows(directory):
    generator = np.random.default_rng(0)
    mask = [False] * 10 + [True] * 4 + [False] * 2 + [True] * 3
    rows, scores = [], []
    for group in range(4):
        for rollout in range(4):
            name, good = f"g{group}/{rollout}", 1.0 if rollout % 2 else -1.0
            row = {"trajectory_id": name, "group_id": f"g{group}", "temperature": 0.8, "weight": 1.0}
            row |= {"token_ids": [*range(8), group, 9, *generator.integers(0, 3, 9).tolist()], "loss_mask": mask}
            row |= {"logprobs": [-5.7 * sampled for sampled in mask], "advantages": [good * sampled for sampled in mask]}
            rows.append(row | {"rewards": [0.0] * 18 + [good]})
            policies = {policy: generator.normal(-5.7, 0.3, 7) for policy in ("reference", "proximal", "teacher")}
            top = {
                "top_k": 4,
                "top_tokens": np.concatenate([generator.permutation(300)[:4] for _ in range(7)]),
                "top_teacher": generator.normal(-5.7, 0.3, 28),
                "hint": 0,
            }
            unhinted = dict.fromkeys((*top, "teacher")) if rollout == 0 else {}
            scores.append({"row_id": name} | policies | top | unhinted)
    write_parquet(pa.Table.from_pylist(rows), directory / "samples.parquet")
    write_parquet(pa.Table.from_pylist(scores, schema_of("token_scores")), directory / "token_scores.parquet")
    return [str(directory / "samples.parquet"), str(directory / "token_scores.parquet")]


@pytest.fixture
def here():
    """here(request, on_step): train in this process; the outcome directory."""

    def run(request, on_step=lambda facts: None):
        train(request, Path(request.output).parent, on_step)
        return Path(request.output)

    yield run
    torch.use_deterministic_algorithms(False)


@pytest.fixture
def cut(here, monkeypatch):
    """cut(request): train in this process up to where the outcome would be committed; the work directory."""

    class PowerCutError(Exception): ...

    def end(*arguments):
        raise PowerCutError

    def run(request):
        with monkeypatch.context() as patched:
            patched.setattr("clawpipe.learn.training.run.commit", end)
            with contextlib.suppress(PowerCutError):
                here(request)
        return Path(request.output).parent

    return run
