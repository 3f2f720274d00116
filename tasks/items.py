"""Steps that make the items to train on, and draw the items on which the models are compared."""

from __future__ import annotations

from clawpipe.core.config.night import Drawn, Measure
from clawpipe.core.store.home import Home
from clawpipe.core.store.open import open_store
from clawpipe.core.store.refs import DatasetRef, ModelRef, StepResult
from clawpipe.learn.evaluation.heldout.conversations import draw_conversations as draw_stored_conversations
from clawpipe.learn.evaluation.heldout.draw import draw_heldout as draw_items
from clawpipe.learn.evaluation.heldout.draw import make_benchmark as make_benchmark_items
from clawpipe.learn.evaluation.heldout.draw import make_task_items
from clawpipe.learn.evaluation.heldout.draw import require_slices as require_item_slices
from clawpipe.learn.evaluation.heldout.holding import hold_out as hold_out_rows
from clawpipe.learn.evaluation.heldout.pairs import draw_pairs as draw_stored_pairs
from clawpipe.learn.evaluation.verdict.looks import Looks, SeveralLooks
from clawpipe.learn.evaluation.verdict.looks import look as look_at
from tasks.step import step


@step()
def make_items(environment: Drawn) -> StepResult:
    """Make the task items to train on."""
    return make_task_items(open_store(Home.from_env()), environment)


@step()
def require_slices(items: DatasetRef, named: list[str]) -> StepResult:
    """Check that the slices that the settings weigh are slices of the train items."""
    return require_item_slices(open_store(Home.from_env()), items, named)


@step()
def make_benchmark(environment: Drawn) -> StepResult:
    """Make the benchmark: held-out items that are the same every night."""
    return make_benchmark_items(open_store(Home.from_env()), environment)


@step()
def draw_heldout(items: DatasetRef, benchmark: DatasetRef | None, environment: Drawn, seen: dict[str, int]) -> StepResult:
    """Draw the held-out items for the verdict: the ones that the fewest nights have looked at."""
    return draw_items(open_store(Home.from_env()), items, benchmark, environment, seen)


@step()
def hold_out(rows: DatasetRef, share: float, one_user: bool = False) -> StepResult:
    """Split stored trajectories or preference pairs into rows to train on and rows that no night trains on."""
    return hold_out_rows(open_store(Home.from_env()), rows, share, one_user)


@step()
def draw_conversations(
    conversations: list[DatasetRef],
    scores: list[DatasetRef],
    imitate: str,
    measure: Measure,
    max_tokens: int,
    count: int,
    seen: dict[str, int],
    one_user: bool = False,
    reviews: DatasetRef | None = None,
    approved_only: bool = False,
    within: tuple[float | None, ...] = (),
) -> StepResult:
    """Draw held-out conversations that can be measured: the ones that the fewest nights have looked at."""
    store = open_store(Home.from_env())
    return draw_stored_conversations(
        store, conversations, scores, imitate, max_tokens, count, seen, measure, one_user, reviews, approved_only, within
    )


@step()
def draw_pairs(
    pairs: list[DatasetRef],
    policy: ModelRef,
    max_tokens: int,
    count: int,
    seen: dict[str, int],
    one_user: bool = False,
    reviews: DatasetRef | None = None,
    approved_only: bool = False,
) -> StepResult:
    """Draw held-out preference pairs: the ones that the fewest nights have looked at."""
    store = open_store(Home.from_env())
    return draw_stored_pairs(store, pairs, policy, max_tokens, count, seen, one_user, reviews, approved_only)


@step(cached=False)
def record_look(ledger: Looks | SeveralLooks, night: str, draw: str, items: DatasetRef) -> StepResult:
    """Record that the night looks at these items, before any model answers them."""
    return look_at(open_store(Home.from_env()), ledger, night, draw, items)
