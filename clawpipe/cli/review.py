"""`clawpipe review`: look at what would teach tonight; approve, reject and edit it, in the terminal or on a local page."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from clawpipe.cli.config import OverrideOption
from clawpipe.cli.output import JsonFlag, print_json
from clawpipe.cli.review_text import counts_of, decision_line, head_lines, heading, past_lines, row_as_json, row_lines, whole_lines
from clawpipe.core.system.processes import user_name

if TYPE_CHECKING:
    from clawpipe.record.reviews.decisions import Decision, Verdict
    from clawpipe.record.reviews.queue import Entry, Queue

app = typer.Typer(help="What would teach tonight: approve, reject or edit it before it does.", no_args_is_help=False)


ConfigOption = Annotated[
    Path | None,
    typer.Option(
        "--config", "-c", help="Settings of the night; without them all that was ingested, and the rollouts of the last night."
    ),
]
JudgesFlag = Annotated[
    bool, typer.Option("--judge", help="Ask the night's judges about rows that they have not scored; votes are kept.")
]
RowsArgument = Annotated[list[str], typer.Argument(metavar="ID...", help="Rows, or the first six or more characters of their ids.")]
RowArgument = Annotated[str, typer.Argument(metavar="ID", help="A row, or the first six or more characters of its id.")]
ByOption = Annotated[str, typer.Option("--by", metavar="NAME", help="Who decides; your login name if left out.")]
ReasonOption = Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why, for the record.")]
AgainFlag = Annotated[bool, typer.Option("--again", help="Decide anew what is decided already.")]


@app.callback(invoke_without_command=True)
def review(context: typer.Context) -> None:
    """Look at what would teach tonight; approve, reject and edit it. Without a command: the list."""
    if context.invoked_subcommand is None:
        list_(config=None, override=[])


@app.command("list")
def list_(
    config: ConfigOption = None,
    override: OverrideOption = [],  # noqa: B006
    limit: Annotated[int, typer.Option("--limit", "-l", min=1, help="Rows to show.")] = 20,
    everything: Annotated[bool, typer.Option("--all", help="Show rows that are decided, too.")] = False,
    judge: JudgesFlag = False,
    json_output: JsonFlag = False,
) -> None:
    """List the rows that would teach tonight, with their scores and the reasons, the most uncertain first.

    A night with `curation.approved_only` learns from approved and edited rows alone; any night leaves out what was rejected.
    """
    queue = _queue(config, override, judge)
    entries = queue.entries()
    shown = [one for one in entries if everything or not one.decided][:limit]
    if json_output:
        print_json(counts_of(entries) | {"rows": [row_as_json(queue, one) for one in shown]})
        return
    typer.echo(heading(entries, len(shown)))
    for entry in shown:
        typer.echo("\n".join(row_lines(queue, entry)))


@app.command("show")
def show(
    row: RowArgument,
    config: ConfigOption = None,
    override: OverrideOption = [],  # noqa: B006
    judge: JudgesFlag = False,
    json_output: JsonFlag = False,
) -> None:
    """Show the whole of a row, what is said of it, and who decided what about it."""
    queue = _queue(config, override, judge)
    entry = queue.entry(row)
    history = queue.decisions.history(entry.row_id)
    if json_output:
        print_json(row_as_json(queue, entry) | {"history": [vars(one) for one in history]})
        return
    typer.echo("\n".join([*head_lines(entry), *whole_lines(queue, entry), *past_lines(history)]))


@app.command("approve")
def approve(
    rows: RowsArgument,
    config: ConfigOption = None,
    override: OverrideOption = [],  # noqa: B006
    reason: ReasonOption = "",
    by: ByOption = "",
    again: AgainFlag = False,
    json_output: JsonFlag = False,
) -> None:
    """Let rows teach what their scores say; what nobody scored is a success for sft and kto then."""
    _decide(rows, "approved", config, override, reason, by, again, json_output)


@app.command("reject")
def reject(
    rows: RowsArgument,
    config: ConfigOption = None,
    override: OverrideOption = [],  # noqa: B006
    reason: ReasonOption = "",
    by: ByOption = "",
    again: AgainFlag = False,
    json_output: JsonFlag = False,
) -> None:
    """Keep rows from teaching, by whatever method; the night counts them as rejected by a person."""
    _decide(rows, "rejected", config, override, reason, by, again, json_output)


@app.command("reopen")
def reopen(
    rows: RowsArgument,
    config: ConfigOption = None,
    override: OverrideOption = [],  # noqa: B006
    reason: ReasonOption = "",
    by: ByOption = "",
    json_output: JsonFlag = False,
) -> None:
    """Take decisions back: the rows wait again."""
    _decide(rows, "open", config, override, reason, by, True, json_output)


@app.command("edit")
def edit(
    row: RowArgument,
    text: Annotated[
        str, typer.Option("--text", metavar="TEXT", help="The answer; without it, it is read from standard input.")
    ] = "",
    turn: Annotated[
        int | None, typer.Option("--turn", help="The turn whose answer it is; the last one in words if left out.")
    ] = None,
    config: ConfigOption = None,
    override: OverrideOption = [],  # noqa: B006
    reason: ReasonOption = "",
    by: ByOption = "",
    again: AgainFlag = False,
    json_output: JsonFlag = False,
) -> None:
    """Put an answer of yours in place of a turn's. The conversation up to it is imitated by sft and kto, and is a pair for dpo.

    Methods that take ratios leave the row out, since nobody drew your words. What was said after the turn is cut off.
    """
    from clawpipe.core.store.home import Home
    from clawpipe.record.reviews.deciding import edit as edit_row

    queue = _queue(config, override, False)
    entry = queue.entry(row)
    if not again:
        _require_open([entry])
    if not text and sys.stdin.isatty():
        typer.echo("The answer, then Ctrl-D:", err=True)
    words = text or sys.stdin.read()
    _tell([edit_row(Home.from_env(), queue, entry, words, _name(by), seen=entry.seen, turn=turn, reason=reason)], json_output)


@app.command("page")
def page(
    config: ConfigOption = None,
    override: OverrideOption = [],  # noqa: B006
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port on loopback; 0: any.")] = 0,
    by: ByOption = "",
    judge: JudgesFlag = False,
) -> None:
    """Serve the queue as a page on this machine, until Ctrl-C. It asks for user and password: the parts of the home's secret."""
    from clawpipe.core.services.secret import secret_file
    from clawpipe.core.store.home import Home
    from clawpipe.core.system.ports import LOOPBACK
    from clawpipe.record.reviews.page import review_app, serve_page
    from clawpipe.serve.serving.access import listen

    home = Home.from_env()
    app = review_app(home, lambda: _queue(config, override, judge), _name(by))
    listener = listen(LOOPBACK, port)
    typer.echo(f"review at http://{LOOPBACK}:{listener.getsockname()[1]}/")
    typer.echo(f"user and password are before and after the colon in {secret_file(home)}")
    serve_page(app, listener)


def _queue(config: Path | None, override: list[str], judge: bool) -> Queue:
    from clawpipe.core.config import load_config
    from clawpipe.core.store.home import Home
    from clawpipe.errors import ConfigError
    from flows.review import review_queue

    if config is None and (override or judge):
        raise ConfigError("there are no settings to change, nor judges to ask", "--config", "name the night's settings")
    return review_queue(Home.from_env(), load_config(config, override) if config else None, judge)


def _decide(
    rows: Sequence[str],
    verdict: Verdict,
    config: Path | None,
    override: list[str],
    reason: str,
    by: str,
    again: bool,
    json_output: bool,
) -> None:
    from clawpipe.core.store.home import Home
    from clawpipe.record.reviews.deciding import decide

    home, queue, name = Home.from_env(), _queue(config, override, False), _name(by)
    named = [queue.entry(row) for row in rows]  # a mistake shows before anything is recorded
    entries = list({entry.row_id: entry for entry in named}.values())
    if not again:
        _require_open(entries)
    _tell(_in_turn(entries, lambda entry: decide(home, queue, entry, verdict, name, seen=entry.seen, reason=reason)), json_output)


def _in_turn(entries: Sequence[Entry], record: Callable[[Entry], Decision]) -> list[Decision]:
    """Record decisions about rows. If somebody else decides about one meanwhile, the error says what was recorded before."""
    from clawpipe.record.reviews.decisions import DecidedError

    made: list[Decision] = []
    for entry in entries:
        try:
            made.append(record(entry))
        except DecidedError as error:
            if not made:
                raise
            fix = f"{len(made)} of {len(entries)} rows were recorded, those named before it: look at the others again"
            raise DecidedError(error.what, error.where, fix) from None
    return made


def _require_open(entries: Sequence[Entry]) -> None:
    from clawpipe.errors import ConfigError

    for entry in entries:
        if entry.decided and entry.decision:
            raise ConfigError(decision_line(entry.decision), entry.row_id, "nothing was recorded: --again decides anew")


def _name(by: str) -> str:
    return by or os.environ.get("CLAWPIPE_REVIEWER") or user_name()


def _tell(made: Sequence[Decision], json_output: bool) -> None:
    if json_output:
        print_json({"decisions": [vars(one) for one in made]})
        return
    for one in made:
        typer.echo(f"{one.row_id} {decision_line(one)}")
