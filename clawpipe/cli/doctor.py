"""`clawpipe doctor`: check whether this machine can run a night."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from clawpipe.cli.output import JsonFlag, print_json

if TYPE_CHECKING:
    from clawpipe.start.doctor.checks import Check

_STYLES = {"ok": "green", "warn": "yellow", "fail": "bold red"}
_SETUP_IS_WRONG = 2


def doctor(
    model: Annotated[str | None, typer.Option(help="Check a base model instead: built-in name, hub id or directory.")] = None,
    dtype: Annotated[str, typer.Option(help="Precision to run it in: float32 or bfloat16.")] = "float32",
    quantization: Annotated[str, typer.Option(help="Its quantization: none, nf4, int8, int8-torchao, ...")] = "none",
    json_output: JsonFlag = False,
) -> None:
    """Check what a night needs: versions, disk, model cache, MLflow, Prefect. Exits with 2 if a check fails.

    With --model: compare the log-probs of generation and training with the model's own, as each night does first.
    """
    checks = _model_checks(model, dtype, quantization, json_output) if model else _night_checks()
    found = list(checks) if json_output else list(_shown(checks))
    well = all(check.state != "fail" for check in found)
    if json_output:
        print_json({"ok": well, "checks": [asdict(check) for check in found]})
    if not well:
        raise typer.Exit(_SETUP_IS_WRONG)


def _night_checks() -> Iterable[Check]:
    from clawpipe.core.store.home import Home
    from clawpipe.start.doctor.checks import run_checks

    return run_checks(Home.from_env())


def _model_checks(base: str, dtype: str, quantization: str, quiet: bool) -> Iterable[Check]:
    from clawpipe.core.config.load import with_settings
    from clawpipe.core.config.night import NightConfig
    from clawpipe.record.reporting.terminal import waiting
    from clawpipe.start.doctor.checks import run_model_checks

    chosen = {"model.base": base, "model.dtype": dtype, "model.quantization": quantization}
    settings = with_settings(NightConfig(), chosen)
    with waiting(f"checking {base}: its engine, then its trainer", quiet=quiet):
        return list(run_model_checks(settings.model, settings.train, settings.runtime))


def _shown(checks: Iterable[Check]) -> Iterable[Check]:
    """Print each check as it comes, and pass it on."""
    from rich.console import Console
    from rich.text import Text

    console = Console(soft_wrap=True)
    for check in checks:
        console.print(Text.assemble((f"{check.state:<5}", _STYLES[check.state]), f"{check.name:<11} {check.found}"))
        if check.fix:
            console.print(Text(f"{'':<17}-> {check.fix}", style="dim"))
        yield check
