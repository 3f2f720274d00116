"""`clawpipe init` and `clawpipe train`: from files to a night's config, and from files to a model in one command."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from clawpipe.cli.config import OverrideOption
from clawpipe.cli.output import JsonFlag, print_json

if TYPE_CHECKING:
    from clawpipe.core.store.home import Home
    from clawpipe.data.ingest.intake.options import Options
    from clawpipe.start.proposing.proposal import Proposal

DEFAULT_MODEL = "smollm2-135m-instruct"
ModelOption = Annotated[str | None, typer.Option("--model", "-m", help="Base model: built-in name, hub id or directory.")]
MethodOption = Annotated[
    str | None, typer.Option("--method", help="sft, grpo, ppo, dpo, kto, opd or combine; else one is proposed.")
]
MapOption = Annotated[
    list[str] | None,
    typer.Option("--map", metavar="TARGET=PATH", help="Field of the logs, e.g. messages=data.turns, as of `clawpipe ingest`."),
]
LabelsOption = Annotated[Path | None, typer.Option(metavar="FILE", help="JSON Lines of labels: prompt, and success or score.")]
MonoclawOption = Annotated[
    Path | None, typer.Option("--monoclaw", metavar="FILE", help="Take what the `rl:` block of MonoClaw's config.yaml says.")
]
McpOption = Annotated[
    str, typer.Option("--mcp", metavar="COMMAND|URL", help="MCP server whose tools the prompts are answered with.")
]


def init(
    paths: Annotated[
        list[str] | None,
        typer.Argument(help="Logs of an agent (files, folders, patterns, URLs), or one file of prompts; none with --mcp alone."),
    ] = None,
    model: ModelOption = None,
    method: MethodOption = None,
    output: Annotated[Path, typer.Option("--output", help="Config to write.")] = Path("night.yaml"),
    map_: MapOption = None,
    labels: LabelsOption = None,
    monoclaw: MonoclawOption = None,
    mcp: McpOption = "",
    tasks: Annotated[int, typer.Option(min=4, help="With --mcp alone: tasks that are made of the server's tools.")] = 32,
    json_output: JsonFlag = False,
) -> None:
    """Look at logs or prompts, and write the config of a night that learns from them.

    The config says in comments what was found and why each setting is proposed. On a terminal it asks for the model, unless
    --model is given. A night that learns from logs takes what was ingested since the last one, so the config is for every night.

    With --mcp and no paths, the tasks are made of the server's tools: calls that change what the server says of its state, told in
    the words of the tools' descriptions. They are written beside the config.
    """
    from clawpipe.core.store.files import write_atomic
    from clawpipe.core.store.permissions import give_to_user
    from clawpipe.data.ingest.intake.options import Options
    from clawpipe.errors import ConfigError
    from clawpipe.start.proposing.propose import propose

    if output.exists():
        raise ConfigError("it is there already", str(output), "name a file that does not exist yet: --output")
    model = model or _asked_for_model(json_output)
    paths = paths or [_tasks_of(mcp, tasks, output)]
    made = propose(paths, model, method, "{date}", Options(map=tuple(map_ or ()), labels=labels), monoclaw, mcp)
    made.add("train", {"start_from": "champion"}, "it goes on from the model in service, once there is one")
    made.config()
    write_atomic(output, made.text().encode())
    give_to_user(output)
    options = [*(f"--map {word}" for word in map_ or ()), *([f"--labels {labels}"] if labels else [])]
    steps = _next_steps(made, [*paths, *options], output)
    if json_output:
        print_json({"config": str(output), "settings": made.settings, "found": made.found, "reasons": made.reasons, "next": steps})
        return
    for line in [*made.found, f"{output}: {made.reasons['train']}", "next:", *(f"  {step}" for step in steps)]:
        typer.echo(line)


def train(
    paths: Annotated[
        list[str], typer.Argument(help="Logs (files, folders, patterns, URLs), preference pairs, or a file of prompts.")
    ],
    model: ModelOption = DEFAULT_MODEL,
    method: MethodOption = None,
    output: Annotated[Path | None, typer.Option("--output", help="Directory to write the trained model into.")] = None,
    map_: MapOption = None,
    labels: LabelsOption = None,
    monoclaw: MonoclawOption = None,
    mcp: McpOption = "",
    override: OverrideOption = [],  # noqa: B006
    wandb_project: Annotated[str, typer.Option("--wandb-project", hidden=True)] = "",  # printed by others' guides
    json_output: JsonFlag = False,
) -> None:
    """Train on files in one command: ingest, curate, train, evaluate on a held-out share, register.

    It is `clawpipe init`, `ingest` and `run`, one after the other, with a config in the home. The same command resumes a run that
    was killed; when the files have grown, it trains on all of them again.
    """
    from clawpipe.cli.night import run
    from clawpipe.core.store.digests import sha256_json
    from clawpipe.core.store.files import require_place
    from clawpipe.core.store.home import Home
    from clawpipe.data.ingest.intake.options import Options
    from clawpipe.data.ingest.intake.state import absolute
    from clawpipe.errors import ConfigError
    from clawpipe.start.proposing.propose import propose

    if output and output.exists():
        raise ConfigError("it is there already", str(output), "name a directory that does not exist: --output")
    if output:
        require_place(output)
    override = [*override, *([f"tracking.wandb={wandb_project}"] if wandb_project else [])]
    home = Home.from_env()
    options = Options(map=tuple(map_ or ()), labels=labels)
    name = f"train-{sha256_json([sorted(absolute(paths)), model, method, options.name, mcp])[:8]}"
    made = propose(paths, model or DEFAULT_MODEL, method, name, options, monoclaw, mcp)
    made.give_way(override)
    config = _written(home, made, paths, options)
    run(config, override, json_output)
    if output:
        _export(home, config, override, output)


def _tasks_of(server: str, count: int, config: Path) -> str:
    """Write tasks of a server's tools beside a config; return their file."""
    from clawpipe.core.store.files import write_atomic
    from clawpipe.core.store.permissions import give_to_user
    from clawpipe.errors import ConfigError
    from clawpipe.play.environments.server_tasks import made_tasks

    if not server:
        raise ConfigError(
            "there is nothing to learn from", "clawpipe init", "name logs or a file of prompts, or a server with --mcp"
        )
    file = config.with_suffix(".tasks.jsonl")
    if file.exists():
        raise ConfigError("it is there already", str(file), "remove it, or name another config: --output")
    lines = "".join(f"{json.dumps(task, ensure_ascii=False)}\n" for task in made_tasks(server, count))
    write_atomic(file, lines.encode())
    give_to_user(file)
    return str(file)


def _asked_for_model(json_output: bool) -> str:
    asks = sys.stdin.isatty() and sys.stdout.isatty() and not json_output
    return typer.prompt("Base model", default=DEFAULT_MODEL) if asks else DEFAULT_MODEL


def _next_steps(made: Proposal, paths: list[str], config: Path) -> list[str]:
    reads = [f"clawpipe ingest {' '.join(paths)}"] if made.settings.get("rollouts", 1) is None else []
    return [*reads, f"clawpipe plan --config {config}", f"clawpipe run --config {config}"]


def _written(home: Home, made: Proposal, data: list[str], options: Options) -> Path:
    """Ingest the files and write the config of a night on them; an equal command gives an equal config."""
    from clawpipe.core.store.files import write_atomic

    if made.settings.get("rollouts", 1) is None:
        _name_datasets(home, made, data, options)
    file = home.root / "train" / f"{made.settings['night']}.yaml"
    write_atomic(file, made.text().encode())
    return file


def _name_datasets(home: Home, made: Proposal, data: list[str], options: Options) -> None:
    """Exchange the words for datasets with the digests of those that were made of these files, in a log of their own."""
    from clawpipe.data.ingest.intake.run import ingest
    from flows.datasets import DATASETS

    done = ingest(
        home, data, replace(options, log=made.settings["night"]), waits=lambda who: typer.echo(f"waiting: {who}", err=True)
    )
    for setting, name in DATASETS.items():
        if setting in made.settings:
            made.settings[setting] = done.parts.get(name, [])


def _export(home: Home, config: Path, override: list[str], output: Path) -> None:
    from clawpipe.core.config import load_config
    from clawpipe.record.nights.files import night_id
    from clawpipe.record.nights.status import read_status
    from clawpipe.serve.export.files import export_version

    registered = read_status(home, night_id(load_config(config, override))).model
    if registered is None:
        typer.echo("nothing was registered, so there is nothing to write", err=True)
        return
    export_version(home, f"{registered.name}@{registered.version}", "merged", output)
    typer.echo(f"{registered.name} version {registered.version} in {output}", err=True)
