"""`clawpipe doctor`: what stands between this machine and a night."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from typing import TYPE_CHECKING

import typer

from clawpipe.cli.output import JsonFlag, print_json

if TYPE_CHECKING:
    from clawpipe.services.checks import Check

_STYLES = {"ok": "green", "warn": "yellow", "fail": "bold red"}
_SETUP_IS_WRONG = 2


def doctor(json_output: JsonFlag = False) -> None:
    """Check what a night needs: versions, disk, model cache, MLflow, Prefect. Ends with 2 where something fails."""
    from clawpipe.services.checks import run_checks
    from clawpipe.store.home import Home

    checks = run_checks(Home.from_env())
    found = list(checks) if json_output else list(_shown(checks))
    well = all(check.state != "fail" for check in found)
    if json_output:
        print_json({"ok": well, "checks": [asdict(check) for check in found]})
    if not well:
        raise typer.Exit(_SETUP_IS_WRONG)


def _shown(checks: Iterable[Check]) -> Iterable[Check]:
    """Print each check as it comes."""
    from rich.console import Console
    from rich.text import Text

    console = Console(soft_wrap=True)
    for check in checks:
        console.print(Text.assemble((f"{check.state:<5}", _STYLES[check.state]), f"{check.name:<11} {check.found}"))
        if check.fix:
            console.print(Text(f"{'':<17}-> {check.fix}", style="dim"))
        yield check
