"""`clawpipe batch` sends many prompts to a model at an endpoint; `clawpipe process` cleans and labels trajectory files."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from clawpipe.cli.output import JsonFlag, print_json
from clawpipe.core.basics.json_types import JsonObject

if TYPE_CHECKING:
    from clawpipe.play.environments.prompts import PromptsEnvironment

_BEGINS = b'{"session_id": "'  # each line of answers
_OWN = "http://127.0.0.1:8000/v1"  # of `clawpipe serve`
_PRINTED = ("run", "true", "false")  # words of other systems' guides: `batch run`, and a value behind --save-tool-calls


def batch(
    words: Annotated[list[str], typer.Argument(metavar="FILE", help="JSON Lines of prompts, with or without answers.")],
    output: Annotated[Path, typer.Option("--output", help="JSON Lines to write; an existing file is continued.")],
    endpoint: Annotated[
        str,
        typer.Option(
            envvar="OPENAI_BASE_URL",
            show_default=False,
            help="URL of a server with OpenAI's interface, up to /v1; by default that of `clawpipe serve`.",
        ),
    ] = _OWN,
    model: Annotated[str, typer.Option("--model", "-m", help="Name of the model at the endpoint.")] = "clawpipe-agent",
    prompt: Annotated[str, typer.Option(help="System message before every prompt.")] = "",
    check: Annotated[str | None, typer.Option(help="How replies are checked against the answers, e.g. numeric.")] = None,
    tools: Annotated[
        str,
        typer.Option(
            metavar="FILE|SERVER",
            help="JSON file of tools, which are run where they name functions; or an MCP server's command or URL.",
        ),
    ] = "",
    max_turns: Annotated[int, typer.Option(min=1, help="Most answers in one trajectory, where tools are run.")] = 10,
    samples: Annotated[int, typer.Option(min=1, help="Answers to each prompt.")] = 1,
    temperature: Annotated[float, typer.Option(min=0.0, help="Sampling temperature.")] = 0.8,
    max_tokens: Annotated[int, typer.Option(min=1, help="Most tokens of one answer.")] = 512,
    concurrency: Annotated[int, typer.Option(min=1, help="Requests at once.")] = 8,
    text_only: Annotated[bool, typer.Option("--text-only", help="Leave out the list of calls; the text spells them.")] = False,
    save_tool_calls: Annotated[bool, typer.Option("--save-tool-calls", hidden=True)] = True,  # printed by others' guides
    json_output: JsonFlag = False,
) -> None:
    """Send every prompt of a file to a model at an endpoint, and write the answers as trajectories that `clawpipe ingest` reads.

    The same command resumes an interrupted run. Prompts are in the form of the environment `prompts`; with --check each line
    says whether the answer was right. The key is taken from OPENAI_API_KEY; where --endpoint is left out, that of `clawpipe serve`
    from CLAWPIPE_API_KEY. Tools that are run make further turns.
    """
    from clawpipe.core.config.engine import EngineSpec
    from clawpipe.model.engines.chat import ChatModel
    from clawpipe.play.environments.prompts import UNCHECKED
    from clawpipe.play.rollouts.trial import line_of
    from clawpipe.play.workers.chats import chat_episodes, verified

    file_, saves_no_calls = _as_printed(words)
    environment = _environment(file_, check or UNCHECKED, prompt, tools)
    for left_out in environment.warnings():
        typer.echo(f"note: {left_out}", err=True)
    answered = set(_answered(output, model))
    tasks = [(item, index) for item in environment.every_item() for index in range(samples)]
    left = [task for task in tasks if f"{task[0].item_id}/{task[1]}" not in answered]
    server = EngineSpec(name="openai", url=(endpoint,), model=model, concurrency=concurrency)
    counts = {"prompts": len(tasks) // samples, "answered_before": len(tasks) - len(left), "answered": 0, "right": 0}
    _make(output)
    _take_own_key(endpoint)
    with output.open("ab") as file, ChatModel.at(server, temperature, max_tokens) as there:
        for played in chat_episodes(there, environment, left, max_turns if environment.runs_tools else 1):
            episode = verified(environment, played) if check is not None else played
            row = line_of(episode, model, environment.tools())
            file.write(json.dumps(_without_calls(row) if text_only or saves_no_calls else row, ensure_ascii=False).encode() + b"\n")
            file.flush()
            counts["answered"] += 1
            counts["right"] += bool(episode.success)
            if not json_output:
                typer.echo(f"\r{counts['answered_before'] + counts['answered']} of {len(tasks)}", err=True, nl=False)
    if json_output:
        print_json(counts | {"output": str(output)})
        return
    _tell(counts, output, bool(check))


def _take_own_key(endpoint: str) -> None:
    """Ask one's own server with its own key; it is sent nowhere else."""
    if endpoint == _OWN and (key := os.environ.get("CLAWPIPE_API_KEY")):
        os.environ["OPENAI_API_KEY"] = key


def _tell(counts: dict[str, int], output: Path, checked: bool) -> None:
    """Say what was asked, and what was not since it had been answered before."""
    right = f", {counts['right']} of them right" if checked else ""
    before = f", beside {counts['answered_before']} from before" if counts["answered_before"] else ""
    if counts["answered_before"] and not counts["answered"]:
        typer.echo(f"nothing was asked: {output} holds an answer to every prompt; to ask again, name another --output")
    else:
        typer.echo(f"\n{counts['answered']} answers{right}{before} in {output}; next: clawpipe ingest {output}")


def _as_printed(words: list[str]) -> tuple[str, bool]:
    """Return the file, and whether `--save-tool-calls false` was written, as another system's guide has it.

    Raises:
        ConfigError: there is no file, or a second one.
    """
    from clawpipe.errors import ConfigError

    files = [word for word in words if word not in _PRINTED]
    if len(files) != 1:
        what = f"one file of prompts is asked for, and not {len(files)}"
        raise ConfigError(what, "clawpipe batch", "write clawpipe batch prompts.jsonl --output answers.jsonl")
    return files[0], "false" in words


def _environment(file: str, check: str, prompt: str, tools: str) -> PromptsEnvironment:
    """Return the prompts with the tools that are offered, and run where something is there to run them."""
    from clawpipe.play.environments.local_tools import is_tool_file, names_functions
    from clawpipe.play.environments.prompts import PromptsEnvironment
    from clawpipe.play.environments.tools import ToolsEnvironment

    if tools and not (is_tool_file(tools) and not names_functions(Path(tools))):
        return ToolsEnvironment(file, tools, check, prompt)
    return PromptsEnvironment(file, check, prompt, tools)


def _make(output: Path) -> None:
    """Make the file and its folder, for the user alone."""
    from clawpipe.core.store.permissions import give_to_user

    if not output.exists():
        output.parent.mkdir(parents=True, exist_ok=True)
        output.touch()
        give_to_user(output)


def process(
    paths: Annotated[list[str], typer.Argument(help="Trajectory files, folders or patterns.")],
    output: Annotated[Path, typer.Option("--output", help="JSON Lines to write.")],
    filter_success_only: Annotated[
        bool, typer.Option("--filter-success-only", help="Keep only what a score calls a success.")
    ] = False,
    labels: Annotated[Path | None, typer.Option(metavar="FILE", help="JSON Lines of labels: prompt, and success or score.")] = None,
    form: Annotated[Literal["chat", "sharegpt"], typer.Option("--format", help="OpenAI's form, or Hermes'.")] = "chat",
    json_output: JsonFlag = False,
) -> None:
    """Clean trajectory files for another tool: tool calls, outcomes as reward and success, no secrets.

    It reads what `clawpipe ingest` reads and stores nothing; `clawpipe train` takes what it writes.
    """
    from clawpipe.core.store.home import Home
    from clawpipe.core.store.open import open_store
    from clawpipe.core.store.remote import VARIABLE
    from clawpipe.data.ingest.intake.options import Options
    from clawpipe.data.ingest.intake.run import ingest
    from clawpipe.errors import DataError
    from clawpipe.serve.export.datasets import export_dataset

    os.environ.pop(VARIABLE, None)  # what is only written shall not reach a shared store
    with tempfile.TemporaryDirectory() as scratch:
        scratch_home = Home(Path(scratch))
        if (rules := Home.from_env().root / "privacy.yaml").is_file():
            shutil.copy(rules, scratch_home.root)
        done = ingest(scratch_home, paths, Options(labels=labels))
        written = export_dataset(open_store(scratch_home), done.datasets["trajectories"], form, output, filter_success_only)
    refused = {**done.refused, **written.filtered}
    if json_output:
        print_json({"output": str(output), "lines": done.reading.lines, "written": written.lines, "filtered": refused})
    else:
        following = f"; next: clawpipe train {output}" if written.lines else ": there is nothing to train on"
        typer.echo(f"{written.lines} of {done.reading.lines} lines in {output}{following}")
        for reason, count in refused.items():
            typer.echo(f"  left out: {count} x {reason}")
    if not written.lines:
        raise typer.Exit(DataError.exit_code)


def _answered(file: Path, model: str) -> list[str]:
    """Return the names of the answers in a file, and cut off a line that a kill tore.

    Raises:
        ConfigError: the file holds something else, or answers of another model; it stays as it is.
    """
    from clawpipe.errors import ConfigError

    if not file.exists():
        return []
    data = file.read_bytes()
    whole = data.rfind(b"\n") + 1
    lines = [_read(line) for line in data[:whole].splitlines()]
    torn = data[whole:][: len(_BEGINS)]
    if not all(lines) or not _BEGINS.startswith(torn):
        raise ConfigError("it holds something else than answers of `clawpipe batch`", str(file), "name another --output")
    if others := {str(line["model"]) for line in lines} - {model}:
        raise ConfigError(f"it holds answers of {', '.join(sorted(others))}", str(file), "name another --output")
    if whole < len(data):
        os.truncate(file, whole)
    return [line["session_id"] for line in lines]


def _read(line: bytes) -> JsonObject:
    """Return an answer's line; an empty object for any other."""
    try:
        read = json.loads(line)
    except ValueError:
        return {}
    return read if isinstance(read, dict) and {"messages", "session_id", "model"} <= read.keys() else {}


def _without_calls(row: JsonObject) -> JsonObject:
    messages = [{name: value for name, value in message.items() if name != "tool_calls"} for message in row["messages"]]
    return row | {"messages": messages}
