"""make_items: the task items of both sides of the split."""

from __future__ import annotations

from clawpipe.config.night import EnvironmentConfig
from clawpipe.environments.items import make_task_items
from clawpipe.store.refs import StepResult
from tasks.resources import resources
from tasks.step import step


@step(module="clawpipe.environments.items")
def make_items(environment: EnvironmentConfig, source: str | None) -> StepResult:
    """Task items for training and the held-out ones, as one dataset."""
    return make_task_items(resources().store, environment)
