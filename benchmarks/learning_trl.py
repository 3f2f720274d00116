"""TRL's side of benchmarks/learning.py: GRPOTrainer learns from rollouts of clawpipe's engine under its own current weights.

Its `rollout_func` writes the adapter as it is, rolls the prompts' items out with it, and returns tokens, log-probs and rewards;
all else is TRL's: advantages, loss (dapo), optimizer, linear schedule.
"""

from __future__ import annotations

import shutil
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from datasets import Dataset
from transformers import AutoModelForCausalLM, PrinterCallback
from trl.trainer.grpo_config import GRPOConfig
from trl.trainer.grpo_trainer import GRPOTrainer

from clawpipe.core.basics.json_types import Row
from clawpipe.core.store.datasets import read_dataset
from clawpipe.core.store.open import open_store
from clawpipe.core.store.refs import DatasetRef, ModelRef
from clawpipe.learn.training.model.adapter import attach_trainable, save_adapter
from clawpipe.model.policy.spec import policy_spec
from clawpipe.model.policy.version import adapter_ref
from clawpipe.model.policy.vocabulary import load_tokenizer
from clawpipe.play.environments.discovery import load_environment
from clawpipe.play.judging.scoring import score_dataset
from clawpipe.play.judging.verifier import VerifierScorer
from clawpipe.play.rollouts.generate import Chunk, generate_chunk

if TYPE_CHECKING:
    from learning import Side

_BATCH = 8  # rows at a time; four optimizer steps for each generation, as on clawpipe's side


def policies(side: Side, rate: float) -> Iterator[ModelRef]:
    """Train with TRL, and yield the policy after each generation's rollouts."""
    kept: list[ModelRef] = []
    with tempfile.TemporaryDirectory() as directory:
        trainer = _trainer(side, rate, Path(directory), kept)
        trainer.train()
        kept.append(_publish(side, trainer.model))
    yield from kept[1:]  # the first one is untrained


def _trainer(side: Side, rate: float, work: Path, kept: list[ModelRef]) -> GRPOTrainer:
    config, rollouts = side.config, side.rollouts
    rows = rollouts.items * rollouts.group_size
    steps = config.train.steps_for(rows, 0)
    spec = policy_spec(open_store(side.home), side.base)
    torch.manual_seed(side.config.seed)
    model = AutoModelForCausalLM.from_pretrained(spec.base, dtype=torch.float32, use_safetensors=True)
    asked = [str(ordinal) for number in range(config.rounds) for ordinal in side.ordinals(number)]
    settings = GRPOConfig(
        output_dir=str(work),
        use_cpu=True,
        bf16=False,
        report_to="none",
        disable_tqdm=True,
        save_strategy="no",
        seed=config.seed,
        learning_rate=rate,
        per_device_train_batch_size=_BATCH,
        gradient_accumulation_steps=rows // steps // _BATCH,
        steps_per_generation=rows // _BATCH,
        max_steps=config.rounds * steps,
        num_generations=rollouts.group_size,
        temperature=rollouts.temperature,
        shuffle_dataset=False,
    )
    trainer = GRPOTrainer(
        model=attach_trainable(model, config.train.lora),
        reward_funcs=_rewards,
        args=settings,
        train_dataset=Dataset.from_dict({"prompt": asked}),
        processing_class=load_tokenizer(Path(spec.base)),
        rollout_func=lambda prompts, trainer: _roll_out(side, prompts, trainer, kept),
    )
    trainer.remove_callback(PrinterCallback)
    return trainer


def _rewards(prompts: list[str], completions: list[str], verified: list[float | None], **_: Any) -> list[float | None]:
    return verified


def _roll_out(side: Side, prompts: list[str], trainer: Any, kept: list[ModelRef]) -> dict[str, list[Any]]:
    """Roll the prompts' items out under the trainer's weights; each prompt stands as often as its group is large."""
    policy = _publish(side, trainer.model)
    kept.append(policy)
    groups = _groups(side, policy, [int(prompt) for prompt in dict.fromkeys(prompts)], seed=len(kept))
    rows = [groups[int(prompt)].pop(0) for prompt in prompts]
    return {
        "prompt_ids": [row["token_ids"][: row["prompt_tokens"]] for row in rows],
        "completion_ids": [row["token_ids"][row["prompt_tokens"] :] for row in rows],
        "env_mask": [[int(own) for own in row["loss_mask"][row["prompt_tokens"] :]] for row in rows],
        "logprobs": [row["logprobs"][row["prompt_tokens"] :] for row in rows],
        "verified": [row["reward"] for row in rows],
    }


def _groups(side: Side, policy: ModelRef, ordinals: list[int], seed: int) -> dict[int, list[Row]]:
    """Return the rollouts of the items, with their rewards, by the items' ordinals."""
    store, environment = open_store(side.home), side.config.environment
    chunk = Chunk(ordinals=tuple(ordinals), together=tuple(ordinals))
    asked = (side.items, policy, side.config.drawn, side.rollouts, chunk, side.seed("round", seed))
    made = generate_chunk(store, side.pool, side.home.work, *asked).dataset
    scorer = VerifierScorer(load_environment(environment.name, environment.options))
    scores = score_dataset(store, made, side.items, [scorer]).dataset
    rewards = {row["trajectory_id"]: row["value"] for row in read_dataset(store, scores).to_pylist() if row["turn"] is None}
    places = {row["item_id"]: row["ordinal"] for row in read_dataset(store, side.items).to_pylist()}
    groups: defaultdict[int, list[Row]] = defaultdict(list)
    for row in _rows(side, made):
        groups[places[row["item_id"]]].append(row | {"reward": rewards[row["trajectory_id"]]})
    return groups


def _rows(side: Side, made: DatasetRef) -> list[Row]:
    columns = ["trajectory_id", "item_id", "token_ids", "loss_mask", "logprobs", "prompt_tokens"]
    return read_dataset(open_store(side.home), made, columns).to_pylist()


def _publish(side: Side, model: Any) -> ModelRef:
    """Store the adapter as it is now."""
    with tempfile.TemporaryDirectory() as directory:
        save_adapter(model, Path(directory), side.base.digest)
        manifest = {"kind": "model", "name": "adapter", "base": side.base.base, "calls": side.base.tool_call_format}

        def fill(target: Path) -> Any:
            shutil.copytree(directory, target, dirs_exist_ok=True)
            return manifest

        digest, _ = open_store(side.home).publish("adapter", fill)
    return adapter_ref(side.base, digest, [])
