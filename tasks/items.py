"""make_items: the task items of both sides of the split."""

from __future__ import annotations

from clawpipe.config.night import EnvironmentConfig
from clawpipe.environments.items import make_task_items
from clawpipe.store.home import Home
from clawpipe.store.open import open_store
from clawpipe.store.refs import StepResult
from tasks.step import step


@step()
def make_items(environment: EnvironmentConfig) -> StepResult:
    """Task items for training and the held-out ones, as one dataset."""
    return make_task_items(open_store(Home.from_env()), environment)
