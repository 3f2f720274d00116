"""`clawpipe sweep`: run nights with different settings."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from clawpipe.cli.config import OverrideOption
from clawpipe.cli.night import ConfigOption
from clawpipe.cli.output import JsonFlag, print_json

if TYPE_CHECKING:
    from clawpipe.core.services.prefect_server import Api
    from clawpipe.core.store.home import Home
    from clawpipe.start.sweeping.results import SweepResult
    from clawpipe.start.sweeping.study import Study

_POOL = "clawpipe"
_NOTHING_DONE = 70

SpaceOption = Annotated[
    Path, typer.Option("--space", "-s", help="YAML file of what to vary: field: {low, high, log, step} or {choices: [...]}.")
]
TrialsOption = Annotated[int, typer.Option("--trials", min=1, help="Total number of trials.")]
NameOption = Annotated[str, typer.Option(help="Name of the sweep; trial 7 is the night NAME-007.")]
SeedOption = Annotated[int, typer.Option(help="Seed of the draws.")]
ParallelOption = Annotated[int, typer.Option(min=1, help="Trials at the same time; several need a work pool.")]
PoolOption = Annotated[
    str | None, typer.Option(metavar="NAME", help=f"Work pool whose workers run the trials; {_POOL} if --parallel needs one.")
]


def sweep(
    config: ConfigOption,
    space: SpaceOption,
    trials: TrialsOption,
    override: OverrideOption = [],  # noqa: B006  (typer copies it)
    name: NameOption = "sweep",
    seed: SeedOption = 0,
    parallel: ParallelOption = 1,
    pool: PoolOption = None,
    json_output: JsonFlag = False,
) -> None:
    """Search for the settings with the best held-out success: each trial is a night that registers and promotes nothing.

    Trials run one after the other in this process, or --parallel at a time as flow runs on a work pool. The same command resumes
    a sweep: finished trials are kept, and a killed trial resumes where it was. A trial whose rollouts do worse after a round than
    half of the earlier trials' is pruned; a failed one is recorded, and the sweep goes on. The best settings are written as a
    config for `clawpipe run`.

    The winner's figure is the best of many looks at the same held-out items, so it is too high: before you trust it, run the config
    as a night under a label of its own (-o night=...), which draws items that no trial has answered. Needs the extra: pip install
    'clawpipe[sweep]'.
    """
    from clawpipe.core.config import load_config
    from clawpipe.core.store.files import exclusive
    from clawpipe.core.store.home import Home
    from clawpipe.record.nights.locks import RUN_LOCK
    from clawpipe.start.sweeping.space import read_space
    from clawpipe.start.sweeping.sweep import Sweep

    settings = load_config(config, override)
    plan = Sweep(name=name, seed=seed, config=settings, space=read_space(space, settings))
    _require_optuna()
    home = Home.from_env()
    with (
        exclusive(home.locks / RUN_LOCK, f"the home {home.root}"),
        exclusive(plan.directory(home) / "sweep.lock", f"the sweep {plan.id}"),
    ):
        results = _finish(home, plan.save(home), trials, parallel, pool or (_POOL if parallel > 1 else None))
    _print(results, json_output)
    if results["best"] is None:
        raise typer.Exit(_NOTHING_DONE)


def _finish(home: Home, directory: Path, trials: int, parallel: int, pool: str | None) -> SweepResult:
    """Run the missing trials. Returns the report."""
    from clawpipe.core.services.prefect_server import prefect_api
    from clawpipe.start.sweeping.results import report
    from clawpipe.start.sweeping.study import Study

    study = Study(directory)
    if not study.is_done(trials):
        with prefect_api(home) as api:
            _run(home, api, study, trials, parallel, pool)
    return report(study)


def _run(home: Home, api: Api, study: Study, trials: int, parallel: int, pool: str | None) -> None:
    """Run the trials in this process, with progress on stderr, or on the pool's workers."""
    from clawpipe.cli.night import flow_log
    from clawpipe.core.services.prefect_server import environment
    from clawpipe.errors import BusyError
    from clawpipe.record.nights.journal import watched_by
    from clawpipe.record.reporting.terminal import Progress
    from clawpipe.start.sweeping.sweep import trial_environment

    if pool and api.private:
        raise BusyError("trials on a work pool need a Prefect server with workers", pool, "start `clawpipe up` in another terminal")
    os.environ.update(environment(home, api, flow_log(home)) | trial_environment(home, study.directory, slot=0))
    with Progress() as progress, watched_by(progress):
        from flows.bootstrap import drain, prepare_night
        from flows.sweep import here, on_pool, prepare_registry, run_trials

        prepare_night(fresh_server=api.private)
        prepare_registry(study, home)
        try:
            run_trials(study, trials, parallel, on_pool(study, home, pool) if pool else here(study))
        finally:
            drain(ending_server=api.private)


def _require_optuna() -> None:
    import importlib.util

    from clawpipe.errors import ConfigError

    if importlib.util.find_spec("optuna") is None:
        fix = "pip install 'clawpipe[sweep]' (in a clone: with --constraint constraints.txt)"
        raise ConfigError("a sweep needs optuna, which is not installed", "clawpipe sweep", fix)


def _print(results: SweepResult, json_output: bool) -> None:
    if json_output:
        print_json(results)
        return
    from rich.console import Console

    from clawpipe.start.sweeping.results import table

    Console().print(table(results), crop=False)  # so that the command in the last line can be copied
