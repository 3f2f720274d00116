"""fit_vocabulary, recompute_logprobs, check_recorded: stored tokens beside the policies that are said to have sampled them."""

from __future__ import annotations

from clawpipe.config.night import Runtime
from clawpipe.recorded.compare import compare_recorded
from clawpipe.recorded.recompute import recompute_logprobs as recompute
from clawpipe.recorded.vocabulary import fit_vocabulary as fit
from clawpipe.store.home import Home
from clawpipe.store.open import open_store
from clawpipe.store.refs import DatasetRef, ModelRef, StepResult
from clawpipe.workers.pool import open_workers
from tasks.step import step


@step()
def fit_vocabulary(trajectories: DatasetRef, policy: ModelRef) -> StepResult:
    """Rows whose recorded tokens the policy can read; the others go to quarantine."""
    return fit(open_store(Home.from_env()), trajectories, policy)


@step()
def recompute_logprobs(
    trajectories: DatasetRef,
    start: ModelRef,
    base: ModelRef,
    known: list[ModelRef],
    text: bool,
    max_tokens: int,
    runtime: Runtime,
) -> StepResult:
    """Log-probs for rows whose own cannot be used, by the policy that they name; for text by the one that training starts from."""
    home = Home.from_env()
    with open_workers(runtime, home.logs) as pool:
        return recompute(open_store(home), pool, trajectories, start, base, known, text=text, max_tokens=max_tokens)


@step()
def check_recorded(samples: DatasetRef, start: ModelRef, base: ModelRef, known: list[ModelRef], runtime: Runtime) -> StepResult:
    """Recorded log-probs must be those of the policies that they name: on a sample, policy version by policy version."""
    home = Home.from_env()
    with open_workers(runtime, home.logs) as pool:
        return compare_recorded(open_store(home), pool, samples, start, base, known)
