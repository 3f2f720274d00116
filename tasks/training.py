"""Step train: train the policy of the next round."""

from __future__ import annotations

from clawpipe import progress
from clawpipe.config.night import Played, Runtime
from clawpipe.config.training import Train
from clawpipe.planning.free_memory import require_free_memory
from clawpipe.policy.spec import policy_spec
from clawpipe.store.home import Home
from clawpipe.store.open import open_store
from clawpipe.store.refs import DatasetRef, ModelRef, StepResult
from clawpipe.training.produce import train_policy
from tasks.step import step


@step(heavy=True)
def train(
    samples: DatasetRef,
    start: ModelRef,
    token_scores: DatasetRef | None,
    config: Train,
    temperature: float,
    seed: int,
    runtime: Runtime,
    rendered_as: Played | None = None,
) -> StepResult:
    """Train on a round's samples, in a subprocess. Pairs that exist only as text are rendered for the environment `rendered_as`."""
    home = Home.from_env()
    store = open_store(home)
    require_free_memory(policy_spec(store, start), config, runtime)
    return train_policy(
        store,
        home.work,
        samples,
        start,
        token_scores,
        config,
        environment=rendered_as,
        temperature=temperature,
        seed=seed,
        runtime=runtime,
        on_progress=progress.report_step,
    )
