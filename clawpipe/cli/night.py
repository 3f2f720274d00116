"""`clawpipe run`, `plan` and `status`: plan a night, run it, and show its status."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from clawpipe.cli.config import OverrideOption
from clawpipe.cli.ending import end_early
from clawpipe.cli.output import JsonFlag, print_json, printable, tell
from clawpipe.core.basics.json_types import JsonObject
from clawpipe.errors import BusyError, ClawpipeError, ConfigError, NotFoundError

if TYPE_CHECKING:
    from clawpipe.core.config import NightConfig
    from clawpipe.core.store.home import Home
    from clawpipe.record.nights.status import NightStatus
    from clawpipe.record.runs.recording import Recorder

ConfigOption = Annotated[Path, typer.Option("--config", "-c", help="YAML file of the night's settings.")]
NightOption = Annotated[Path | None, typer.Option("--config", "-c", help="YAML file of the night's settings.")]
_OF_USERS = "registry.per: these steps are run for each user who said something new, on that user's rows"
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
        _print_status(status, Home.from_env())


def _run_of_users(config: Path, overrides: list[str], json_output: bool) -> None:
    """Run the night of each user who said something new, and print them together as JSON, or each as it ends."""
    from clawpipe.core.store.home import Home
    from flows.users import each, overrides_of_users

    home, nights = Home.from_env(), list[JsonObject]()

    def run_one(own: list[str]) -> None:
        run_id, status = _run_one(config, own, json_output)
        nights.append({"run": run_id, **status.model_dump(mode="json")})
        if not json_output:
            _print_status(status, home)

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
        from flows import nightly  # noqa: F401  (for `_night`)
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


def plan(
    config: ConfigOption = DEFAULT_CONFIG,
    override: OverrideOption = [],  # noqa: B006
    hardware: Annotated[bool, typer.Option("--hardware", help="Show the memory that the night needs instead.")] = False,
    gpu: Annotated[
        str | None,
        typer.Option(help="Show the memory that the night needs on rtx-4090, a100-40, a100-80, h100, h200 or a size: 48gb."),
    ] = None,
    check_model: Annotated[
        bool, typer.Option("--check-model", help="Only run the check of the model that a night begins with. Fetches the model.")
    ] = False,
    json_output: JsonFlag = False,
) -> None:
    """Show what a night would do: its settings, each step's cache key, and whether the step would run. Nothing is written.

    The key of a step that depends on steps yet to run is unknown, and shown as "-". With --hardware: the peak memory of generation
    and training, whether it fits this machine or the given GPU, and the cheapest change that makes it fit.
    """
    from clawpipe.core.config import load_config
    from clawpipe.record.nights.files import night_id

    settings = load_config(config, override)
    if hardware or gpu:
        _plan_hardware(settings, gpu, json_output)
        return
    if check_model:
        _plan_check(settings, json_output)
        return
    from clawpipe.core.services.prefect_server import no_api
    from clawpipe.core.store.home import Home
    from clawpipe.model.planning.architecture import router_note
    from clawpipe.model.planning.rate import rate_facts, rate_notes, rate_of_night
    from clawpipe.record.nights.compared import shares_note

    with no_api():  # even importing Prefect would create a directory
        from flows.labels import labelled
        from flows.planning import plan_night

        settings = labelled(Home.from_env(), settings)
        steps = plan_night(settings)
    rate = rate_of_night(settings)
    told = [router_note(settings.model.base), shares_note(settings), *rate_notes(settings.train, rate)]
    told += [_OF_USERS] if settings.registry.per else []
    notes = [note for note in told if note]
    plan = {"night": night_id(settings), "config": settings.model_dump(mode="json"), "steps": steps, "notes": notes}
    plan["rate"] = rate_facts(settings.train, rate)
    if json_output:
        print_json(plan)
    else:
        from clawpipe.record.reporting.summary import plan_table

        _print(plan_table(plan))
        for note in notes:
            print(note)


def _plan_hardware(settings: NightConfig, gpu: str | None, json_output: bool) -> None:
    from clawpipe.model.planning.architecture import architecture_of
    from clawpipe.model.planning.hardware import local_device, named
    from clawpipe.model.planning.plan import as_dict, estimate

    found = estimate(settings, architecture_of(settings.model.base), named(gpu) if gpu else local_device(settings.runtime.device))
    if json_output:
        print_json(as_dict(found))
        return
    from clawpipe.model.planning.plan import hardware_table

    _print(hardware_table(found))


def _plan_check(settings: NightConfig, json_output: bool) -> None:
    import tempfile

    from clawpipe.core.config.night import Rollouts
    from clawpipe.learn.evaluation.model_check import check_model
    from clawpipe.model.policy.spec import untrained_spec
    from clawpipe.play.workers.pool import WorkerPool
    from clawpipe.record.reporting.terminal import waiting

    with tempfile.TemporaryDirectory() as scratch, WorkerPool(settings.runtime, Path(scratch)) as pool:
        engine = (settings.rollouts or Rollouts()).engine
        with waiting(f"checking {settings.model.base}: its engine, then its trainer", quiet=json_output):
            found = check_model(pool, Path(scratch), untrained_spec(settings.model), settings.train, settings.runtime, engine)
    if json_output:
        print_json({"model": settings.model.base, "check": [figures.model_dump() for figures in found]})
        return
    for figures in found:
        print(f"{figures.part:<8} {figures}")


def status(
    night: Annotated[str | None, typer.Option("--night", help="A night's id; by default the latest.")] = None,
    limit: Annotated[int, typer.Option("--limit", "-l", min=1, help="Most nights in the table of the latest ones.")] = 20,
    every_model: Annotated[
        bool, typer.Option("--all", help="One line for each model: last verdict, what runs, when it is due.")
    ] = False,
    json_output: JsonFlag = False,
) -> None:
    """Show a past or running night: steps, held-out figures, verdict, model, and the evidence left."""
    from clawpipe.core.store.home import Home
    from clawpipe.record.nights.conclude import count_evidence_in
    from clawpipe.record.nights.files import list_nights
    from clawpipe.record.nights.status import read_status

    home = Home.from_env()
    if every_model:
        _print_models(home, json_output)
        return
    nights = list_nights(home)
    if not nights:
        due = "; ".join(_schedule(home))
        raise NotFoundError("no night has run here", str(home.root), due or "start one: clawpipe run --config configs/demo.yaml")
    found = count_evidence_in(home, read_status(home, night or nights[-1]))
    if json_output:
        print_json(found.model_dump(mode="json"))
        return
    _print_status(found, home)
    if night is None and len(nights) > 1:
        from clawpipe.record.reporting.summary import nights_table

        _print(nights_table(list(_readable(home, nights[-limit:]))))
        if len(nights) > limit:
            typer.echo(f"{len(nights) - limit} earlier nights: --limit {len(nights)} shows them")
    for line in _schedule(home):
        typer.echo(f"schedule: {line}")


def _print_models(home: Home, json_output: bool) -> None:
    from clawpipe.record.reporting.models import model_statuses, models_table

    found = model_statuses(home, _next_nights(home))
    if json_output:
        print_json({"models": [one.model_dump(mode="json") for one in found]})
    elif found:
        _print(models_table(found))
    else:
        raise NotFoundError("no night has run here", str(home.root), "start one: clawpipe run --config configs/demo.yaml")


def _next_nights(home: Home) -> dict[str, str]:
    """Return when the next night of each model is due; nothing while `clawpipe up` does not run, or does not answer."""
    from clawpipe.core.services.prefect_server import announced_url
    from clawpipe.core.services.schedules import deployed

    url = announced_url(home)
    with suppress(ClawpipeError):
        found = deployed(home, url) if url else []
        return {one.model: f"{one.next_run:%Y-%m-%d %H:%M}" for one in found if one.model and one.next_run}
    return {}


def _schedule(home: Home) -> list[str]:
    """Return when each deployment of `clawpipe up` runs next, and how it last ended; nothing while it is not up."""
    from clawpipe.core.services.prefect_server import announced_url
    from clawpipe.core.services.schedules import deployed

    url = announced_url(home)
    try:
        return [str(one) for one in deployed(home, url)] if url else []
    except ClawpipeError as error:
        return [str(error)]


def _readable(home: Home, nights: list[str]) -> Iterator[NightStatus]:
    """Yield the statuses of nights; errors of damaged ones are printed, and the others are shown."""
    from clawpipe.record.nights.status import read_status

    for night in nights:
        try:
            yield read_status(home, night)
        except ClawpipeError as error:
            tell(error, as_json=False)


def flow_log(home: Home) -> Path:
    """Return the log of Prefect and the libraries in processes that run nights."""
    log = home.root / "logs" / "flow.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    return log


def _print_status(status: NightStatus, home: Home) -> None:
    """Print the night, and last the address of its lineage on one line, so that a terminal makes a link of it."""
    from clawpipe.record.reporting.summary import summary

    _print(summary(status))
    if page := status.lineage_page:
        where, address = _address(page, home)
        typer.echo(f"lineage as a graph{where}\n  {printable(address)}")


def _address(page: str, home: Home) -> tuple[str, str]:
    """Return where to find a Prefect page, and its address; a path is a page of the home's server."""
    from clawpipe.core.services.prefect_server import announced_url

    if not page.startswith("/"):
        return "", page
    url = announced_url(home)
    return ("", f"{url.removesuffix('/api')}{page}") if url else (", on Prefect's pages while `clawpipe up` runs", page)


def _print(what: Any) -> None:
    """Print a renderable on stdout, 80 columns wide unless it is a terminal."""
    from rich.console import Console

    Console(width=None if sys.stdout.isatty() else 80).print(what, crop=False)
