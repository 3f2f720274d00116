"""Step check_model: check that engine and trainer agree with the model's own forward, before anything is generated."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from clawpipe.core.config.night import EngineSpec, Runtime
from clawpipe.core.config.training import Train
from clawpipe.core.store.home import Home
from clawpipe.core.store.open import open_store
from clawpipe.core.store.refs import ModelRef, StepResult
from clawpipe.learn.evaluation.model_check import check_model as check
from clawpipe.model.policy.spec import policy_spec
from clawpipe.play.workers.pool import open_workers
from tasks.step import step


@step(heavy=True, anywhere=True)
def check_model(policy: ModelRef, train: Train, engine: EngineSpec, runtime: Runtime) -> StepResult:
    """Compare the log-probs of engine and trainer with the model's on a few conversations; an error where they differ too much."""
    home = Home.from_env()
    spec = policy_spec(open_store(home), policy)
    home.work.mkdir(parents=True, exist_ok=True)
    with open_workers(runtime, home.logs) as pool, TemporaryDirectory(prefix="check-", dir=home.work) as own:
        found = check(pool, Path(own), spec, train, runtime, engine)
    return StepResult(details={figures.part: figures.model_dump(mode="json") for figures in found})
