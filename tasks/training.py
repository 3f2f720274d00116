"""train: the policy of the next round."""

from __future__ import annotations

from clawpipe.config.training import Train
from clawpipe.store.refs import DatasetRef, ModelRef, StepResult
from clawpipe.training.produce import train_policy
from tasks.resources import resources
from tasks.step import step


@step(
    module=("clawpipe.training.produce", "clawpipe.training.__main__"),
    libraries=("torch", "transformers", "peft", "accelerate"),
    heavy=True,
)
def train(samples: DatasetRef, start: ModelRef, config: Train, temperature: float, seed: int) -> StepResult:
    """Train on a round's samples, in a process of its own."""
    night = resources()
    return train_policy(
        night.store,
        night.home.work,
        samples,
        start,
        config,
        temperature=temperature,
        seed=seed,
        runtime=night.runtime,
        on_progress=lambda facts: night.journal.progress(facts["step"], facts["of"], f"loss {facts['loss']:.3f}"),
    )
