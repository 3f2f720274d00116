"""Step train: train the policy of the next round."""

from __future__ import annotations

from clawpipe.core.config.night import Played, Runtime
from clawpipe.core.config.training import Train
from clawpipe.core.store.home import Home
from clawpipe.core.store.open import open_store
from clawpipe.core.store.refs import DatasetRef, ModelRef, OptimizerRef, StepResult
from clawpipe.core.system import progress
from clawpipe.learn.training.course import Course
from clawpipe.learn.training.produce import NightSoFar, train_policy
from clawpipe.model.planning.free_memory import require_free_memory
from clawpipe.model.policy.spec import policy_spec
from tasks.step import step


@step(heavy=True, anywhere=lambda given: given["config"].backend.is_local)
def train(
    samples: DatasetRef,
    start: ModelRef,
    token_scores: DatasetRef | None,
    config: Train,
    temperature: float,
    seed: int,
    runtime: Runtime,
    rendered_as: Played | None = None,
    max_tokens: int | None = None,
    course: Course | None = None,
    optimizer: OptimizerRef | None = None,
    night_start: ModelRef | None = None,
) -> StepResult:
    """Train on a round's samples, in a subprocess. Pairs that exist only as text are rendered for the environment `rendered_as`.
    Pairs with a side of more than `max_tokens` are filtered.

    With `course` it is a round of a night that started from `night_start`; it goes on with the state of `optimizer`, unless it is
    the first.
    """
    home = Home.from_env()
    store = open_store(home)
    if config.backend.is_local:
        require_free_memory(policy_spec(store, start), config, runtime)
    return train_policy(
        store,
        home.work,
        samples,
        start,
        token_scores,
        config,
        night=NightSoFar(course, optimizer, night_start or start) if course else None,
        environment=rendered_as,
        max_tokens=max_tokens,
        temperature=temperature,
        seed=seed,
        runtime=runtime,
        on_progress=progress.report_step,
    )
