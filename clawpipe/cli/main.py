"""The command line: its commands, and how failures are reported.

A command's module imports at its top only what `--help` needs; torch, mlflow, prefect, duckdb and pyarrow wait until
the command runs.
"""

from __future__ import annotations

import os
import re
import sys
import traceback
from collections.abc import Callable, Sequence
from functools import cache
from typing import Annotated, NoReturn

import typer

from clawpipe import __version__
from clawpipe.cli import (
    atropos,
    batch,
    chat,
    config,
    connect,
    contract,
    datasets,
    demo,
    deploy,
    doctor,
    environments,
    explain,
    forget,
    gateway,
    gc,
    ingest,
    inspect,
    judge,
    keys,
    mcp,
    metrics,
    models,
    night,
    plan,
    report,
    rescore,
    review,
    runs,
    serve,
    server,
    sessions,
    start,
    status,
    sweep,
    up,
)
from clawpipe.cli import (
    open as open_,
)
from clawpipe.cli.output import escape_unencodable, paragraphs, tell, wants_json
from clawpipe.cli.spellings import command_class
from clawpipe.core.basics.masking import without_secrets
from clawpipe.core.store.home import Home
from clawpipe.core.store.permissions import keep_private
from clawpipe.core.system.machine import as_clawpipe_error, full_disk
from clawpipe.core.system.processes import let_waiting_threads_sleep, quick_exit
from clawpipe.errors import ClawpipeError, ConfigError, StoppedError

_HELP = """Turn agent trajectories into a trained, evaluated, registered and served model, every night.

All files are written to $CLAWPIPE_HOME (~/.clawpipe unless set); results of nights also to $CLAWPIPE_STORE, if set."""

_PYDANTIC = "Value error, "  # before the message of a validator
_SETTINGS = re.compile(r"unexpected extra argument.*\((\S+\.ya?ml)\)")
_EPILOG = """Exit codes: 0 done; for a night: any verdict was reached · 2 wrong usage or config ·
65 unusable data · 70 training failed, or something unexpected happened · 75 try again later · 130 interrupted.

CLAWPIPE_DEBUG=1 shows where an error came from."""

app = typer.Typer(
    name="clawpipe",
    help=_HELP,
    epilog=paragraphs(_EPILOG),
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("run", rich_help_panel="Nights")(night.run)
app.command("demo", rich_help_panel="Nights")(demo.demo)
app.command("init", rich_help_panel="Nights")(start.init)
app.command("train", rich_help_panel="Nights")(start.train)
app.command("plan", rich_help_panel="Nights")(plan.plan)
app.command("status", rich_help_panel="Nights")(status.status)
app.command("report", rich_help_panel="Nights")(report.report)
app.command("open", rich_help_panel="Nights")(open_.open_)
app.command("sweep", rich_help_panel="Nights")(sweep.sweep)
app.command("ingest", rich_help_panel="Data")(ingest.ingest)
app.command("batch", rich_help_panel="Data")(batch.batch)
app.command("process", rich_help_panel="Data")(batch.process)
app.command("atropos", rich_help_panel="Data")(atropos.atropos)
app.command("inspect", rich_help_panel="Data")(inspect.inspect)
app.command("rescore", rich_help_panel="Data")(rescore.rescore)
app.command("export", rich_help_panel="Data")(datasets.export)
app.command("forget", rich_help_panel="Data")(forget.forget)
app.command("gc", rich_help_panel="Data")(gc.gc)
app.command("chat", rich_help_panel="Models")(chat.chat)
app.command("serve", rich_help_panel="Models")(serve.serve)
app.command("gateway", rich_help_panel="Models")(gateway.gateway)
app.command("connect", rich_help_panel="Models")(connect.connect)
app.command("mcp", rich_help_panel="Nights")(mcp.mcp)
app.command("trace", rich_help_panel="Models")(models.trace)
app.command("promote", rich_help_panel="Models")(models.promote)
app.command("deploy", rich_help_panel="Models")(deploy.deploy)
app.command("undeploy", rich_help_panel="Models")(deploy.undeploy)
app.command("deployments", rich_help_panel="Models")(deploy.deployments)
app.command("rollback", rich_help_panel="Models")(models.rollback)
app.command("up", rich_help_panel="Services")(up.up)
app.command("metrics", rich_help_panel="Services")(metrics.metrics)
app.command("doctor", rich_help_panel="Services")(doctor.doctor)
app.add_typer(runs.app, name="runs", rich_help_panel="Nights")
app.add_typer(datasets.app, name="datasets", rich_help_panel="Data")
app.add_typer(contract.app, name="contract", rich_help_panel="Data")
app.add_typer(models.app, name="models", rich_help_panel="Models")
app.add_typer(sessions.app, name="sessions", rich_help_panel="Data")
app.add_typer(judge.app, name="judge", rich_help_panel="Data")
app.add_typer(review.app, name="review", rich_help_panel="Data")
app.command("explain", rich_help_panel="Settings", context_settings={"ignore_unknown_options": True})(explain.explain)
app.add_typer(keys.app, name="keys", rich_help_panel="Settings")
app.add_typer(environments.app, name="env", rich_help_panel="Settings")
app.add_typer(config.app, name="config", rich_help_panel="Settings")
app.add_typer(server.app, name="prefect", rich_help_panel="Services")


def _finish(app: typer.Typer, *words: str) -> None:
    """Let commands take old spellings, and join the lines of help texts: Typer would break them where the docstring's lines end."""
    for command in app.registered_commands:
        command.cls = command_class(" ".join([*words, str(command.name)]))
        command.help = paragraphs(command.help or getattr(command.callback, "__doc__", None) or "")
    for group in app.registered_groups:
        if group.typer_instance:
            _finish(group.typer_instance, *words, str(group.name))


_finish(app)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")] = False,
) -> None: ...


def main() -> NoReturn:
    """Run the command line of this process, and end the process."""
    escape_unencodable()
    quick_exit(_outcome(sys.argv[1:]))


def run(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command line and exit with its code. A failure is one message on stderr, or with `--json` an object on stdout."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    escape_unencodable()
    sys.exit(_outcome(words))


@cache
def _put_together(app: typer.Typer) -> Callable[..., object]:
    """Return the command line with all its commands, which takes as long as a quick one of them."""
    return typer.main.get_command(app)


def _outcome(words: list[str]) -> int:
    keep_private()
    let_waiting_threads_sleep()
    try:
        code = _put_together(app)(words, prog_name="clawpipe", standalone_mode=False)
        sys.stdout.flush()
        return code if isinstance(code, int) else 0  # an int is the code of a typer.Exit
    except ClawpipeError as error:
        return _tell(_cause(error), words)
    except typer.TyperException as error:
        return _tell(_usage(error), words) if str(error) else error.exit_code  # without a message, the help was printed
    except KeyboardInterrupt:
        return StoppedError.exit_code
    except BrokenPipeError:  # the reader of the output has closed it
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:
        unexpected = ClawpipeError(f"unexpected {type(error).__name__}: {error}", fix="please report it with the lines above")
        known = _cause(as_clawpipe_error(error) or unexpected)
        if known is unexpected:
            typer.echo(without_secrets(traceback.format_exc()), err=True, nl=False)
        return _tell(known, words)


def _cause(error: ClawpipeError) -> ClawpipeError:
    """Return the error, or a full disk as its cause, since a full disk shows in many ways."""
    try:
        return (full_disk(Home.from_env().root) if error.exit_code == ClawpipeError.exit_code else None) or error
    except (ClawpipeError, OSError):
        return error


def _usage(error: typer.TyperException) -> ConfigError:
    context = getattr(error, "ctx", None)
    command, what = context.command_path if context else "clawpipe", error.format_message().replace(_PYDANTIC, "")
    config = _SETTINGS.search(what)
    fix = f"settings stand behind --config: --config {config[1]}" if config else f"`{command} --help` lists what there is"
    return ConfigError(what, command, fix)


def _tell(error: ClawpipeError, words: list[str]) -> int:
    if os.environ.get("CLAWPIPE_DEBUG"):
        traceback.print_exception(error)
    tell(error, wants_json(words))
    return error.exit_code


if __name__ == "__main__":
    main()
