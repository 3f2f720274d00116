"""`clawpipe plan`: show what a night would do."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from clawpipe.cli.config import OverrideOption
from clawpipe.cli.night import DEFAULT_CONFIG, ConfigOption
from clawpipe.cli.output import JsonFlag, print_at_80, print_json

if TYPE_CHECKING:
    from clawpipe.core.config import NightConfig

_OF_USERS = "registry.per: these steps are run for each user who said something new, on that user's rows"


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
    from clawpipe.core.config.idle import idle_note
    from clawpipe.core.services.prefect_server import no_api
    from clawpipe.core.store.home import Home
    from clawpipe.model.planning.architecture import router_note
    from clawpipe.model.planning.rate import rate_facts, rate_notes, rate_of_night
    from clawpipe.record.nights.compared import shares_note

    with no_api():  # even importing Prefect would create a directory
        from flows.labels import labelled
        from flows.planning import plan_night
        from flows.refusals import undemonstrated

        settings = labelled(Home.from_env(), settings)
        steps = plan_night(settings)
    rate = rate_of_night(settings)
    told = [
        idle_note(settings),
        undemonstrated(settings),
        router_note(settings.model.base),
        shares_note(settings),
        *rate_notes(settings.train, rate),
    ]
    told += [_OF_USERS] if settings.registry.per else []
    notes = [note for note in told if note]
    plan = {"night": night_id(settings), "config": settings.model_dump(mode="json"), "steps": steps, "notes": notes}
    plan["rate"] = rate_facts(settings.train, rate)
    if json_output:
        print_json(plan)
    else:
        from clawpipe.record.reporting.summary import plan_table

        print_at_80(plan_table(plan))
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

    print_at_80(hardware_table(found))


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
