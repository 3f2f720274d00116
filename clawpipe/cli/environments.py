"""`clawpipe env`: list the environments for a night's rollouts, show the options of one, write, check and try one."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from clawpipe.cli.output import JsonFlag, options_of, print_json

if TYPE_CHECKING:
    from clawpipe.core.config.environment import EnvironmentSpec
    from clawpipe.play.environments.options import Option
    from clawpipe.play.rollouts.trial import Trial

app = typer.Typer(help="Environments for rollouts.", no_args_is_help=True)

PythonOption = Annotated[str | None, typer.Option("--python", metavar="FILE", help="Python with the environment's own packages.")]
NameArgument = Annotated[
    str | None,
    typer.Argument(metavar="[NAME]", help="Built-in name, or path/to/file.py:ClassName; with --config, one of its environments."),
]
NightOption = Annotated[Path | None, typer.Option("--config", "-c", help="YAML file of the night whose environment it is.")]
FoldersOption = Annotated[list[Path], typer.Option("--dir", "-d", help="A directory with your environments; repeatable.")]


@app.command("list")
def list_(folders: FoldersOption = [], json_output: JsonFlag = False) -> None:  # noqa: B006  (typer copies it)
    """List the built-in environments, other libraries' and those in your directories, without importing any of them."""
    from clawpipe.play.environments.discovery import list_environments, list_libraries

    found = [asdict(info) for info in [*list_environments(folders), *list_libraries()]]
    if json_output:
        print_json({"environments": found})
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from clawpipe.record.reporting.wording import one_line

    table = Table("name", "kind", "environment.name", "what it is", box=None, pad_edge=False)
    for info in found:
        table.add_row(*(Text(one_line(info[part])) for part in ("name", "kind", "reference", "summary")))
    Console().print(table)


@app.command("show")
def show(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Built-in name, or path/to/file.py:ClassName.")],
    json_output: JsonFlag = False,
) -> None:
    """Show what an environment is, and its options: type, default, unit, limits, and whether an option is locked.

    Options stand below environment.options in a night's settings.
    """
    from clawpipe.play.environments.discovery import show_environment

    info, options = show_environment(name)
    if json_output:
        print_json(asdict(info) | {"options": [asdict(option) for option in options]})
        return
    typer.echo(f"{info.name} ({info.kind or 'kind unknown'}): {info.summary}")
    if not options:
        typer.echo("it has no options")
        return
    from rich.console import Console

    Console().print(_options(options))


def _options(options: list[Option]) -> object:
    from rich.table import Table
    from rich.text import Text

    table = Table("option", "type", "default", "", "what it is", box=None, pad_edge=False)
    for one in options:
        default = "required" if one.required else json.dumps(one.default, default=str, ensure_ascii=False)
        limits = ", ".join(f"{key} {value}" for key, value in one.limits.items() if not isinstance(value, dict | list))
        note = ", ".join(filter(None, (one.unit, limits, "locked" if one.locked else "")))
        table.add_row(*map(Text, (one.name, one.type, default, note, one.description)))
    return table


@app.command("init")
def init(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Python file to write, e.g. my_env.py.")],
    json_output: JsonFlag = False,
) -> None:
    """Write a new environment that works as it is, to be changed into your own."""
    from clawpipe.play.environments.scaffold import write_environment

    reference = write_environment(file)
    if json_output:
        print_json({"file": str(file), "reference": reference})
        return
    typer.echo(f"{file} holds an environment; next: clawpipe env check {reference}")


@app.command("check")
def check(
    name: NameArgument = None,
    options: Annotated[list[str], typer.Option("--option", metavar="NAME=VALUE", help="Option of the environment.")] = [],  # noqa: B006
    config: NightOption = None,
    items: Annotated[int, typer.Option(min=1, help="Task items of each side.")] = 4,
    timeout: Annotated[float, typer.Option(min=0.1, help="Most seconds of one call.")] = 30.0,
    python: PythonOption = None,
    json_output: JsonFlag = False,
) -> None:
    """Check without a model that an environment keeps its protocol.

    Scripted policies play its first items: one that says nothing, one that calls wrongly, and its demonstration. Items must be
    equal for equal arguments, and outcomes for equal episodes, in another process as well; verify must say the same twice, rewards
    be from 0 to 1, calls keep their deadline, and close must leave no process. Exit code 65: something is at fault.
    """
    from clawpipe.play.environments.soundness import check_environment

    chosen = _chosen(name, options, python, config)
    done = check_environment(chosen.name, chosen.options, items, timeout, chosen.python)
    if json_output:
        facts = {"sound": done.sound, "episodes": done.episodes, "episodes_per_second": done.per_second}
        print_json({"environment": chosen.name, **facts, "findings": [one._asdict() for one in done.findings]})
    else:
        for one in done.findings:
            typer.echo(f"{one.status:5}  {one.check}" + (f": {one.what}" if one.what else ""))
        typer.echo(f"{done.episodes} episodes, {done.per_second:.1f} a second")
    if not done.sound:
        raise typer.Exit(65)


@app.command("test")
def try_(
    name: NameArgument = None,
    options: Annotated[list[str], typer.Option("--option", metavar="NAME=VALUE", help="Option of the environment.")] = [],  # noqa: B006
    config: NightOption = None,
    models: Annotated[
        list[str], typer.Option("--model", "-m", metavar="NAME[@URL]", help="Base model, or a model at an endpoint; repeatable.")
    ] = ["smollm2-135m-instruct"],  # noqa: B006
    steps: Annotated[int, typer.Option(min=1, help="Task items.")] = 3,
    samples: Annotated[int, typer.Option(min=1, help="Episodes of each item.")] = 16,
    max_turns: Annotated[int, typer.Option(min=1, help="Turns of an episode.")] = 4,
    max_tokens: Annotated[int, typer.Option(min=1, help="Most tokens of one answer.")] = 64,
    output: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Write the episodes there, one JSON Lines file per model.")
    ] = None,
    python: PythonOption = None,
    json_output: JsonFlag = False,
) -> None:
    """Try an environment on a few items before a long run.

    For each model: the share of episodes without a malformed call, the share that succeeded, the mean value, and the errors of
    the verifier. Nothing is trained or stored. A key for endpoints is taken from OPENAI_API_KEY.
    """
    from clawpipe.core.store.files import require_place
    from clawpipe.play.rollouts.trial import Limits, file_for, try_environment
    from clawpipe.record.reporting.terminal import waiting

    limits = Limits(steps, samples, max_turns, max_tokens)
    environment = _chosen(name, options, python, config)
    files = [file_for(output, model) if output else None for model in models]
    for file in filter(None, files):
        require_place(file)
    with waiting(f"playing {steps} items of {environment.name} {samples} times with {', '.join(models)}", quiet=json_output):
        trials = [try_environment(environment, model, limits, file) for model, file in zip(models, files, strict=True)]
    if json_output:
        print_json({"environment": environment.name, "models": [asdict(trial) for trial in trials]})
        return
    from rich.console import Console

    Console().print(_trials(trials))


def _chosen(name: str | None, options: list[str], python: str | None, config: Path | None) -> EnvironmentSpec:
    """Return the environment that is named, or that of a night, with its options and Python; the command's own come first.

    Raises:
        ConfigError: none is named, or the night has none of this name, or several.
    """
    from clawpipe.core.config import load_config
    from clawpipe.core.config.environment import EnvironmentSpec
    from clawpipe.errors import ConfigError
    from clawpipe.play.environments.several import named

    given = options_of(options)
    if config is None:
        if name is None:
            raise ConfigError("no environment is named", "NAME", "write one, or the settings of a night: --config night.yaml")
        return EnvironmentSpec(name=name, options=given, python=python)
    there = named(load_config(config, []).drawn)
    labelled = [one.spec for one in there if name == one.label]
    found = labelled or [one.spec for one in there if name in (None, one.spec.name)]
    if len(found) != 1:
        labels = " or ".join(one.label for one in there)
        what = f"it has {len(found) or 'no'} environments" + (f" called {name}" if name else "")
        raise ConfigError(what, str(config), f"name one: {labels}")
    [spec] = found
    return EnvironmentSpec(
        name=spec.name, options={**spec.options, **given}, call_timeout=spec.call_timeout, python=python or spec.python
    )


def _trials(trials: list[Trial]) -> object:
    from rich.table import Table
    from rich.text import Text

    table = Table("model", "episodes", "parsed", "success", "value", "errors", "seconds", box=None, pad_edge=False)
    for trial in trials:
        shares = (f"{value:.3f}" if value is not None else "-" for value in (trial.parsed, trial.success, trial.value))
        errors = f"{trial.errors} ({trial.first_error})" if trial.errors else "0"
        table.add_row(Text(trial.model), str(trial.episodes), *shares, Text(errors), f"{trial.seconds:.0f}")
    return table


@app.command("plant")
def plant(
    output: Annotated[Path, typer.Option("--output", metavar="FOLDER", help="Where tasks and repositories are written.")],
    packages: Annotated[
        list[str], typer.Option("--package", help="Package to plant faults into; repeatable; all if left out.")
    ] = [],  # noqa: B006
    tasks: Annotated[int, typer.Option(min=1, help="Number of tasks.")] = 300,
    seed: Annotated[int, typer.Option(help="Decides which faults are tried, in which order.")] = 0,
    sdists: Annotated[
        Path | None, typer.Option(help="Folder of the packages' archives; missing ones are downloaded there.")
    ] = None,
    json_output: JsonFlag = False,
) -> None:
    """Plant faults into real packages of PyPI, as tasks for the environment swe.

    A fault counts if at least one of the package's own tests fails because of it and at least one passes. Tests run in a sandbox.
    The packages are pinned by version and digest, and equal arguments give equal tasks.
    """
    from clawpipe.play.environments.faults.packages import packages_named, sdist, tree_of
    from clawpipe.play.environments.faults.write import write_tasks
    from clawpipe.play.environments.swe.workbench import DEFAULT_PLACE

    archives = sdists or output / "sdists"
    trees = [tree_of(package, sdist(package, archives)) for package in packages_named(packages)]
    written = write_tasks(output, trees, DEFAULT_PLACE, tasks, seed, lambda line: typer.echo(line, err=True))
    if json_output:
        print_json({"file": str(written.file), "tasks": written.counts})
        return
    typer.echo(
        f"{sum(written.counts.values())} tasks in {written.file}; next: clawpipe env check swe --option tasks={written.file}"
    )
