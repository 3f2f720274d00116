"""train: the policy of the next round."""

from __future__ import annotations

from clawpipe.config.night import EnvironmentConfig
from clawpipe.config.training import Train
from clawpipe.store.refs import DatasetRef, ModelRef, StepResult
from clawpipe.training.produce import train_policy
from tasks.resources import resources
from tasks.step import step


@step(
    module=("clawpipe.training.produce", "clawpipe.training.__main__"),
    libraries=("torch", "transformers", "peft", "accelerate", "trl"),
    heavy=True,
)
def train(
    samples: DatasetRef,
    start: ModelRef,
    token_scores: DatasetRef | None,
    config: Train,
    temperature: float,
    seed: int,
    environment: EnvironmentConfig | None = None,
    source: str | None = None,
) -> StepResult:
    """Train on a round's samples, in a process of its own. Pairs that exist only as text are rendered as the environment's."""
    night = resources()
    return train_policy(
        night.store,
        night.home.work,
        samples,
        start,
        token_scores,
        config,
        environment=environment,
        temperature=temperature,
        seed=seed,
        runtime=night.runtime,
        on_progress=night.journal.update,
    )
