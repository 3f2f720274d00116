"""generate_rollouts: chunk tasks, and their union."""

from __future__ import annotations

from clawpipe.config.night import EnvironmentConfig, Rollouts
from clawpipe.rollouts.generate import Chunk
from clawpipe.rollouts.generate import generate_chunk as generate
from clawpipe.store.datasets import dataset_files, publish_files
from clawpipe.store.refs import DatasetRef, ModelRef, StepResult
from tasks.resources import resources
from tasks.step import step


@step(module=("clawpipe.rollouts.generate", "clawpipe.rollouts.worker"), libraries=("torch", "transformers", "peft", "pyarrow"))
def generate_chunk(
    items: DatasetRef,
    policy: ModelRef,
    environment: EnvironmentConfig,
    source: str | None,
    config: Rollouts,
    chunk: Chunk,
    seed: int,
) -> StepResult:
    """Rollouts of some train items."""
    night = resources()
    return generate(night.store, night.pool, night.home.work, items, policy, environment, config, chunk, seed)


@step(module="clawpipe.store.datasets", libraries=("pyarrow",))
def collect_rollouts(chunks: list[DatasetRef]) -> StepResult:
    """One dataset of all chunks' shards, linked, not copied."""
    store = resources().store
    files = [file for chunk in chunks for file in dataset_files(store, chunk)]
    output = publish_files(store, "trajectories", files, parents=[parent for chunk in chunks for parent in chunk.parents])
    return StepResult(output=output, rows_in=sum(chunk.rows for chunk in chunks), rows_out=output.rows)
