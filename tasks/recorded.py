"""Steps fit_vocabulary, recompute_logprobs, check_recorded: compare stored tokens with the policies said to have sampled them."""

from __future__ import annotations

from clawpipe.core.config.night import Runtime
from clawpipe.core.store.home import Home
from clawpipe.core.store.open import open_store
from clawpipe.core.store.refs import DatasetRef, ModelRef, StepResult
from clawpipe.play.recorded.compare import are_still_absent, compare_recorded
from clawpipe.play.recorded.recompute import recompute_logprobs as recompute
from clawpipe.play.recorded.vocabulary import fit_vocabulary as fit
from clawpipe.play.workers.pool import open_workers
from tasks.step import step


def _are_still_absent(result: StepResult) -> bool:
    return are_still_absent(open_store(Home.from_env()), result)


@step()
def fit_vocabulary(trajectories: DatasetRef, policy: ModelRef) -> StepResult:
    """Keep rows whose recorded tokens are in the policy's vocabulary; the others go to quarantine."""
    return fit(open_store(Home.from_env()), trajectories, policy)


@step(anywhere=True, holds=_are_still_absent)
def recompute_logprobs(
    trajectories: DatasetRef,
    start: ModelRef,
    base: ModelRef,
    known: list[ModelRef],
    text: bool,
    max_tokens: int,
    runtime: Runtime,
) -> StepResult:
    """Recompute unusable log-probs: under the policy that the row names, or for text under the policy that training starts from."""
    home = Home.from_env()
    with open_workers(runtime, home.logs) as pool:
        return recompute(open_store(home), pool, trajectories, start, base, known, text=text, max_tokens=max_tokens)


@step(anywhere=True, holds=_are_still_absent)
def check_recorded(samples: DatasetRef, start: ModelRef, base: ModelRef, known: list[ModelRef], runtime: Runtime) -> StepResult:
    """Check on a sample of rows, for each policy version, that recorded log-probs are those of the named policy."""
    home = Home.from_env()
    with open_workers(runtime, home.logs) as pool:
        return compare_recorded(open_store(home), pool, samples, start, base, known)
