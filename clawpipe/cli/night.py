"""`clawpipe run`: run a night to its verdict."""

from __future__ import annotations

import logging
import os
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from clawpipe.cli.config import OverrideOption
from clawpipe.cli.ending import end_early
from clawpipe.cli.output import JsonFlag, print_json, tell
from clawpipe.cli.status import print_status
from clawpipe.core.basics.json_types import JsonObject
from clawpipe.errors import BusyError, ClawpipeError, ConfigError

if TYPE_CHECKING:
    from clawpipe.core.config import NightConfig
    from clawpipe.core.store.home import Home
    from clawpipe.record.nights.status import NightStatus
    from clawpipe.record.runs.recording import Recorder

ConfigOption = Annotated[Path, typer.Option("--config", "-c", help="YAML file of the night's settings.")]
NightOption = Annotated[Path | None, typer.Option("--config", "-c", help="YAML file of the night's settings.")]
DEFAULT_CONFIG = Path("configs/demo.yaml")


def run(config: NightOption = None, override: OverrideOption = [], json_output: JsonFlag = False) -> None:  # noqa: B006
    """Run a night to its verdict; a repeated run resumes it.

    Finished steps come from the cache, so the same command resumes a night that was killed, and does nothing for one that is done.
    It uses the configured Prefect API, else a private server for as long as the night runs.
    """
    if config is None:
        fix = "clawpipe run --config night.yaml; `clawpipe init FILES` writes one, and `clawpipe demo` shows an example"
        raise ConfigError("a night's config is not named", "--config", fix)
    if not json_output:
        typer.echo(f"reading {config}", err=True)  # at once: imports and servers take a while
    from clawpipe.core.config import load_config
    from clawpipe.core.store.home import Home

    if load_config(config, override).registry.per:
        _run_of_users(config, override, json_output)
        return
    run_id, status = _run_one(config, override, json_output)
    if json_output:
        print_json({"run": run_id, **status.model_dump(mode="json")})
    else:
        print_status(status, Home.from_env())


def _run_of_users(config: Path, overrides: list[str], json_output: bool) -> None:
    """Run the night of each user who said something new, and print them together as JSON, or each as it ends."""
    from clawpipe.core.store.home import Home
    from flows.users import each, overrides_of_users

    home, nights = Home.from_env(), list[JsonObject]()

    def run_one(own: list[str]) -> None:
        run_id, status = _run_one(config, own, json_output)
        nights.append({"run": run_id, **status.model_dump(mode="json")})
        if not json_output:
            print_status(status, home)

    each(overrides_of_users(home, config, overrides), run_one, lambda error: tell(error, as_json=False))
    if json_output:
        print_json({"nights": nights})


def _run_one(config: Path, override: list[str], json_output: bool) -> tuple[str, NightStatus]:
    """Run a night; return the id of the run, and the night's status."""
    from clawpipe.core.config import load_config
    from clawpipe.core.services.prefect_server import environment, prefect_api
    from clawpipe.core.store.home import Home
    from clawpipe.record.nights.files import night_id, run_dir
    from clawpipe.record.nights.locks import run_held
    from clawpipe.record.nights.status import NightStatus
    from clawpipe.record.reporting.terminal import waiting
    from clawpipe.record.runs.recording import recorded
    from flows.labels import labelled
    from flows.refusals import refuse_early

    given = load_config(config, override)  # a mistake shows before anything starts
    home = Home.from_env()
    settings = labelled(home, given)
    run_dir(home, night_id(settings))  # and so does one of its name
    refuse_early(home, settings)
    with (
        run_held(home, settings.registry.model_name),
        recorded(home, _facts(settings, config, override)) as recorder,
        end_early(lambda: _kept(home, recorder, ending.why), json_output) as ending,
    ):
        if not json_output:
            typer.echo(f"night {night_id(settings)} in {home.root}, run {recorder.run.id}", err=True)
        with ExitStack() as stack:
            with waiting("starting Prefect, which runs the steps", quiet=json_output):
                api = stack.enter_context(prefect_api(home))
                if api.service is not None:
                    ending.follow(api.service)
                os.environ.update(environment(home, api, flow_log(home)))
                _load_steps(private=api.private)
            status = NightStatus.model_validate(_night(str(config), override, private=api.private))
    return recorder.run.id, status


def _facts(settings: NightConfig, config: Path, overrides: list[str]) -> dict[str, Any]:
    """Return what is known of a run before it starts."""
    from clawpipe.record.nights.files import night_id

    return {
        "night": night_id(settings),
        "model": settings.registry.model_name,
        "config": str(config),
        "overrides": list(overrides),
    }


def _kept(home: Home, recorder: Recorder, why: ClawpipeError | None) -> str:
    """Record the end of an interrupted run, and return a sentence about the finished steps that it keeps."""
    from clawpipe.record.nights.status import read_status

    recorder.end("failed" if isinstance(why, BusyError) else "stopped", why.what if why else "interrupted")
    try:
        steps = len(read_status(home, recorder.run.night).steps)
    except ClawpipeError:
        steps = 0
    kept = f"{steps} finished step{'s' * (steps != 1)}, shards and checkpoints are kept in {home.root}"
    return f"{kept}: the same command resumes there"


def _load_steps(private: bool) -> None:
    """Import the flow, which takes seconds, and prepare its server."""
    from clawpipe.core.system.quick_imports import quick_imports

    logging.raiseExceptions = False  # a log that cannot be written must not fill the terminal with tracebacks
    with quick_imports():
        from flows.bootstrap import prepare_night

    prepare_night(fresh_server=private)


def _night(config: str, overrides: list[str], private: bool) -> JsonObject:
    """Run the flow in this process, with its progress on stderr."""
    from clawpipe.record.nights.journal import watched_by
    from clawpipe.record.reporting.terminal import Progress
    from flows.bootstrap import drain
    from flows.nightly import nightly

    with Progress() as progress, watched_by(progress):
        try:
            return nightly(config, overrides)
        finally:
            drain(ending_server=private)


def flow_log(home: Home) -> Path:
    """Return the log of Prefect and the libraries in processes that run nights."""
    log = home.root / "logs" / "flow.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    return log
