"""probe_teacher and annotate: what other policies than the round's own have to say about its rollouts."""

from __future__ import annotations

from clawpipe.config.night import EnvironmentConfig, Rollouts
from clawpipe.config.training import Opd
from clawpipe.evaluation.probe import probe_teacher as probe
from clawpipe.store.refs import DatasetRef, ModelRef, StepResult
from clawpipe.training.annotate_produce import HintSource, annotate_dataset
from clawpipe.training.annotate_request import Role
from tasks.resources import resources
from tasks.step import step


@step(module=("clawpipe.evaluation.probe", "clawpipe.rollouts.worker"), libraries=("torch", "transformers", "peft", "pyarrow"))
def probe_teacher(
    items: DatasetRef,
    trajectories: list[DatasetRef],
    scores: list[DatasetRef],
    student: ModelRef,
    teacher: ModelRef,
    environment: EnvironmentConfig,
    source: str | None,
    rollouts: Rollouts,
    config: Opd,
    seed: int,
) -> StepResult:
    """How often the teacher that sees a hint succeeds, and how often the student does without."""
    night = resources()
    return probe(
        night.store,
        night.pool,
        night.home.work,
        items,
        trajectories,
        scores,
        student,
        teacher,
        environment,
        rollouts,
        config,
        seed,
    )


@step(
    module=("clawpipe.training.annotate_produce", "clawpipe.training.annotate"),
    libraries=("torch", "transformers", "peft", "pyarrow"),
    heavy=True,
)
def annotate(
    rows: DatasetRef,
    policies: dict[Role, ModelRef],
    scores: list[DatasetRef],
    items: DatasetRef,
    environment: EnvironmentConfig,
    source: str | None,
    config: Opd,
    pack_tokens: int,
    temperature: float,
) -> StepResult:
    """Log-probs that other policies give to the trained tokens, in a process of its own."""
    night = resources()
    return annotate_dataset(
        night.store,
        night.home.work,
        rows,
        policies,
        HintSource(scores, items, environment) if "teacher" in policies else None,
        config,
        pack_tokens=pack_tokens,
        temperature=temperature,
        runtime=night.runtime,
        on_progress=lambda facts: night.journal.progress(facts["step"], facts["of"], facts["note"]),
    )
