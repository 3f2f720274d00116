"""Steps probe_teacher and annotate: score the round's rollouts with policies other than the round's."""

from __future__ import annotations

from clawpipe.core.config.night import Generation, Played, Runtime
from clawpipe.core.config.training import Opd
from clawpipe.core.store.home import Home
from clawpipe.core.store.open import open_store
from clawpipe.core.store.refs import DatasetRef, ModelRef, StepResult
from clawpipe.core.system import progress
from clawpipe.core.user_code.user_errors import LOG
from clawpipe.learn.annotation.produce import HintSource, annotate_dataset
from clawpipe.learn.annotation.request import Role
from clawpipe.learn.evaluation.probe import probe_teacher as probe
from clawpipe.play.workers.pool import open_workers
from tasks.step import step


@step(anywhere=True)
def probe_teacher(
    items: DatasetRef,
    trajectories: list[DatasetRef],
    scores: list[DatasetRef],
    student: ModelRef,
    teacher: ModelRef,
    environment: Played,
    rollouts: Generation,
    config: Opd,
    seed: int,
    runtime: Runtime,
) -> StepResult:
    """Measure how often the teacher succeeds when it sees a hint, and how often the student succeeds without."""
    home = Home.from_env()
    with open_workers(runtime, home.logs) as pool:
        return probe(
            open_store(home),
            pool,
            home.work,
            items,
            trajectories,
            scores,
            student,
            teacher,
            environment,
            rollouts,
            config,
            seed,
            home.logs / LOG,
        )


@step(heavy=True, anywhere=True)
def annotate(
    rows: DatasetRef,
    policies: dict[Role, ModelRef],
    scores: list[DatasetRef],
    items: DatasetRef,
    environment: Played,
    config: Opd,
    pack_tokens: int,
    temperature: float,
    runtime: Runtime,
) -> StepResult:
    """Compute the log-probs of the trained tokens under other policies, in a subprocess."""
    home = Home.from_env()
    return annotate_dataset(
        open_store(home),
        home.work,
        rows,
        policies,
        HintSource(scores, items, environment) if "teacher" in policies else None,
        config,
        pack_tokens=pack_tokens,
        temperature=temperature,
        runtime=runtime,
        on_progress=lambda done: progress.report(done["step"], done["of"], done["note"]),
    )
