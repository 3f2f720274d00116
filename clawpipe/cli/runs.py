"""`clawpipe runs`: what ran and what runs, started by hand or by a deployment; stop it, read its logs and its results."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from clawpipe.cli.output import JsonFlag, print_json, print_table, printable

if TYPE_CHECKING:
    from clawpipe.record.runs.record import Run
    from clawpipe.record.runs.results import Results

app = typer.Typer(help="Runs of nights, by hand and by deployment.", no_args_is_help=True)

RunArgument = Annotated[
    str | None,
    typer.Argument(metavar="RUN", help="Id of the run or its beginning, its night, or its id in Prefect; by default the newest."),
]
_EMPTY = "no runs yet: `clawpipe run -c night.yaml` makes one, and so does each night of `clawpipe up`"


@app.command("list")
def list_(
    limit: Annotated[int, typer.Option("--limit", "-l", min=1, help="Most runs to list.")] = 20,
    state: Annotated[
        str | None, typer.Option("--state", help="pending, starting, running, stopping, stopped, completed or failed.")
    ] = None,
    model: Annotated[str | None, typer.Option("--model", "-m", help="Only runs for this registered model.")] = None,
    day: Annotated[str, typer.Option("--day", metavar="DATE", help="Only runs started on this day, UTC: 2026-11-25.")] = "",
    json_output: JsonFlag = False,
) -> None:
    """List runs, the newest first; before them those that wait in Prefect for their turn.

    A run that was killed shows as failed, and the same command goes on where it was.
    """
    from clawpipe.core.store.home import Home
    from clawpipe.record.registry.names import model_name
    from clawpipe.record.runs.listing import list_runs

    model = model_name(model) if model else None
    found = list_runs(Home.from_env(), limit + 1, _state(state), model, _day(day))
    runs, more = found[:limit], len(found) > limit
    if json_output:
        print_json({"runs": [run.model_dump(mode="json") for run in runs], "more": more})
        return
    if not runs:
        typer.echo("no such runs: `clawpipe runs list` shows all" if state or model or day else _EMPTY)
        return
    print_table(_table(runs))
    if more:
        typer.echo(f"the newest {limit}; --limit shows more")


@app.command("show")
def show(run: RunArgument = None, json_output: JsonFlag = False) -> None:
    """Show a run: its state, the step it is at, who started it, and how it ended."""
    from clawpipe.core.store.home import Home

    found = _found(Home.from_env(), run)
    if json_output:
        print_json(found.model_dump(mode="json"))
        return
    for name, value in _facts(found).items():
        if value:
            typer.echo(f"{name:<11} {printable(str(value))}")


@app.command("stop")
def stop(
    run: Annotated[str, typer.Argument(metavar="RUN", help="Id of the run or its beginning, its night, or its id in Prefect.")],
    json_output: JsonFlag = False,
) -> None:
    """Stop a run with all its processes, within seconds. Finished steps are kept: the same command goes on there.

    A run of a deployment is Cancelled in Prefect then; one that still waits there does not start.
    """
    from clawpipe.core.store.home import Home
    from clawpipe.record.runs.stop import stop_run

    found = stop_run(Home.from_env(), run)
    if json_output:
        print_json(found.model_dump(mode="json"))
    else:
        typer.echo(f"run {found.id}: {found.state}" + (f", {printable(found.why)}" if found.why else ""))


@app.command("logs")
def logs(
    run: RunArgument = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until the run ends.")] = False,
    limit: Annotated[int, typer.Option("--limit", "-l", min=0, help="Most lines of each file to begin with, the last ones.")] = 100,
    json_output: JsonFlag = False,
) -> None:
    """Show the log files of a run's night: its events, and what its processes wrote. Runs of one night share them."""
    from clawpipe.core.store.home import Home
    from clawpipe.errors import ConfigError
    from clawpipe.record.runs.logs import last_lines

    if follow and json_output:
        raise ConfigError("--follow prints lines as they come, which is no one JSON object", "--json", "leave one of them out")
    home = Home.from_env()
    found = _found(home, run)
    if follow:
        from clawpipe.record.runs.logs import follow as followed

        _print_lines(followed(home, found, limit))
        return
    lines = last_lines(home, found, limit)
    if json_output:
        print_json({"run": found.id, "lines": [line._asdict() for line in lines]})
    elif not lines:
        typer.echo(f"no logs of run {found.id}: its night writes them once it has begun")
    else:
        _print_lines(iter(lines))


@app.command("results")
def results(run: RunArgument = None, json_output: JsonFlag = False) -> None:
    """Show what a run's night has measured: verdict, held-out figures, training metrics from their first to their last step.

    With --json the metrics of every optimizer step; while a night trains, those up to now.
    """
    from clawpipe.core.store.home import Home
    from clawpipe.record.runs.results import results_of

    home = Home.from_env()
    found = results_of(home, _found(home, run))
    if json_output:
        print_json(found.model_dump(mode="json"))
    else:
        _print_results(found)


def _found(home: Any, name: str | None) -> Run:
    from clawpipe.record.runs.listing import find_run, newest_run

    return newest_run(home) if name is None else find_run(home, name)


def _state(word: str | None) -> Any:
    from clawpipe.errors import ConfigError
    from clawpipe.record.runs.record import STATES

    if word is not None and word not in STATES:
        raise ConfigError(f"{word!r} is no state of a run", "--state", f"write one of {', '.join(STATES)}")
    return word


def _day(text: str) -> str:
    import datetime

    from clawpipe.errors import ConfigError

    try:
        return str(datetime.date.fromisoformat(text)) if text else ""
    except ValueError:
        raise ConfigError(f"{text!r} is no day", "--day", "write it as 2026-11-25") from None


def _facts(run: Run) -> dict[str, Any]:
    process = f"{run.process.number} on {run.process.host}" if run.process else None
    return {
        "run": run.id,
        "state": run.state,
        "why": run.why,
        "night": run.night,
        "model": run.model,
        "step": run.step,
        "verdict": run.verdict,
        "started": f"{run.started} by {run.started_by}",
        "ended": run.ended,
        "process": process,
        "in Prefect": run.flow_run,
        "config": " ".join([run.config, *(f"-o {word}" for word in run.overrides)]),
    }


def _table(runs: list[Run]) -> Any:
    from rich.table import Table

    from clawpipe.record.reporting.wording import elided

    table = Table("run", "state", "by", box=None, pad_edge=False)
    table.add_column("night", overflow="fold")
    table.add_column("step or verdict", overflow="fold")
    for run in runs:
        what = run.verdict if run.state == "completed" else run.why or run.step
        table.add_row(elided(run.id, 36), run.state, run.started_by, elided(run.night, 40), elided(what or "", 60))
    return table


def _print_lines(lines: Any) -> None:
    """Print lines under the name of their file, as `tail` does."""
    from clawpipe.record.runs.logs import readable

    shown = None
    for line in lines:
        if line.file != shown:
            typer.echo(f"==> {line.file} <==")
        shown = line.file
        typer.echo(printable(readable(line)))


def _print_results(found: Results) -> None:
    from rich.table import Table
    from rich.text import Text

    from clawpipe.record.reporting.wording import interval, one_line

    typer.echo(f"{found.night}: {found.verdict or 'no verdict yet'}")
    for reason in found.reasons:
        typer.echo(f"  {printable(reason)}")
    figures = Table("held-out", found.measure, box=None, pad_edge=False)
    for role, value in [*found.heldout.items(), *((f"benchmark/{role}", value) for role, value in found.benchmark.items())]:
        figures.add_row(Text(one_line(role)), interval(value))
    metrics = Table("metric", "steps", "first", "last", box=None, pad_edge=False)
    for name, history in found.metrics.items():
        metrics.add_row(name, str(len(history)), f"{history[0][1]:.4g}", f"{history[-1][1]:.4g}")
    print_table(figures)
    if found.metrics:
        print_table(metrics)
    else:
        typer.echo("no training metrics yet: the night's first optimizer step makes them")
