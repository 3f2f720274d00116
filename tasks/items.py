"""Steps make_items, make_benchmark, draw_heldout, record_look: the items to train on, and the items that every model answers."""

from __future__ import annotations

from clawpipe.config.night import EnvironmentConfig
from clawpipe.evaluation.draw import draw_heldout as draw_items
from clawpipe.evaluation.draw import make_benchmark as make_benchmark_items
from clawpipe.evaluation.draw import make_task_items
from clawpipe.evaluation.ledger import Ledger
from clawpipe.evaluation.ledger import look as look_at
from clawpipe.store.home import Home
from clawpipe.store.open import open_store
from clawpipe.store.refs import DatasetRef, StepResult
from tasks.step import step


@step()
def make_items(environment: EnvironmentConfig) -> StepResult:
    """Make the task items to train on."""
    return make_task_items(open_store(Home.from_env()), environment)


@step()
def make_benchmark(environment: EnvironmentConfig) -> StepResult:
    """Make the benchmark: held-out items that are the same every night."""
    return make_benchmark_items(open_store(Home.from_env()), environment)


@step()
def draw_heldout(
    items: DatasetRef, benchmark: DatasetRef | None, environment: EnvironmentConfig, seen: dict[str, int]
) -> StepResult:
    """Draw the held-out items for the verdict: the ones that the fewest nights have looked at."""
    return draw_items(open_store(Home.from_env()), items, benchmark, environment, seen)


@step(cached=False)
def record_look(ledger: Ledger, night: str, draw: str, items: DatasetRef) -> StepResult:
    """Record that the night looks at these items, before any model answers them."""
    return look_at(open_store(Home.from_env()), ledger, night, draw, items)
