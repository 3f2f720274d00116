"""`clawpipe review`: look at what would teach tonight; approve, reject and edit it, in the terminal or on a local page."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from clawpipe.cli.config import OverrideOption
from clawpipe.cli.output import JsonFlag, print_json, printable
from clawpipe.core.system.processes import user_name

if TYPE_CHECKING:
    from clawpipe.core.basics.json_types import JsonObject
    from clawpipe.record.reviews.decisions import Decision, Verdict
    from clawpipe.record.reviews.queue import Entry, Queue

app = typer.Typer(help="What would teach tonight: approve, reject or edit it before it does.", no_args_is_help=False)

_SHOWN = 300  # characters of a text in the list
_INDENT = 7

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
        print_json(_counts(entries) | {"rows": [_as_json(queue, one) for one in shown]})
        return
    typer.echo(_heading(entries, len(shown)))
    for entry in shown:
        typer.echo("\n".join(_lines(queue, entry)))


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
        print_json(_as_json(queue, entry) | {"history": [vars(one) for one in history]})
        return
    typer.echo("\n".join([*_head(entry), *_whole(queue, entry), *_past(history)]))


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
    entries = [queue.entry(row) for row in rows]  # a mistake shows before anything is recorded
    if not again:
        _require_open(entries)
    _tell([decide(home, queue, entry, verdict, name, seen=entry.seen, reason=reason) for entry in entries], json_output)


def _require_open(entries: Sequence[Entry]) -> None:
    from clawpipe.errors import ConfigError

    for entry in entries:
        if entry.decided and entry.decision:
            raise ConfigError(_told(entry.decision), entry.row_id, "nothing was recorded: --again decides anew")


def _name(by: str) -> str:
    return by or os.environ.get("CLAWPIPE_REVIEWER") or user_name()


def _tell(made: Sequence[Decision], json_output: bool) -> None:
    if json_output:
        print_json({"decisions": [vars(one) for one in made]})
        return
    for one in made:
        typer.echo(f"{one.row_id} {_told(one)}")


def _told(one: Decision) -> str:
    from clawpipe.record.reviews.decisions import told

    return printable(told(one))


def _as_json(queue: Queue, entry: Entry) -> JsonObject:
    from clawpipe.record.reviews.queue import parts_of

    text = {name or "messages": messages for name, messages in parts_of(entry, queue.text(entry)).items()}
    return entry.as_json() | {"text": text}


def _counts(entries: Sequence[Entry]) -> JsonObject:
    decided = [one.decision.verdict for one in entries if one.decided and one.decision]
    verdicts = {verdict: decided.count(verdict) for verdict in ("approved", "rejected", "edited")}
    return {"waiting": len(entries) - len(decided), **verdicts}


def _heading(entries: Sequence[Entry], shown: int) -> str:
    counts = _counts(entries)
    others = ", ".join(f"{count} {name}" for name, count in counts.items() if name != "waiting")
    cut = f", {shown} shown" if shown < counts["waiting"] else ""
    waits = "1 row waits" if counts["waiting"] == 1 else f"{counts['waiting']} rows wait"
    return f"{waits}{cut} ({others}); the most uncertain first"


def _head(entry: Entry) -> Iterator[str]:
    owner = [f"{name} {value}" for name, value in (("session", entry.session), ("user", entry.user)) if value]
    yield printable(f"{entry.uncertainty:5.2f}  {entry.row_id}")
    yield printable(f"{' ' * _INDENT}{', '.join([f'{entry.source} {entry.kind}', *owner])}")
    if entry.decided and entry.decision:
        yield f"{' ' * _INDENT}{_told(entry.decision)}"
    for line in _scores(entry):
        yield f"{' ' * _INDENT}{line}"


def _scores(entry: Entry) -> Iterator[str]:
    if not entry.opinions:
        yield "nobody has scored it"
    for one in entry.opinions:
        of = "" if one.turn is None else f" of turn {one.turn}"
        votes = " votes " + " ".join("?" if vote is None else f"{vote:+d}" for vote in one.votes) if one.votes else ""
        yield printable(f"{one.value:+.2g}{of} by {one.scorer}" + (f": {one.reason}" if one.reason else "") + votes)


def _lines(queue: Queue, entry: Entry) -> Iterator[str]:
    """Yield a row with its last exchange, or the sides of a pair."""
    yield from _head(entry)
    row = queue.text(entry)
    if entry.kind == "pair":
        yield from _labelled("prompt", row["prompt"][-1]["content"] if row["prompt"] else "")
        yield from _labelled("chosen", row["chosen"][-1]["content"])
        yield from _labelled("rejected", row["rejected"][-1]["content"])
        return
    from clawpipe.record.reviews.queue import talk_of

    for turn in talk_of(entry, row)[-1:]:
        yield from _labelled("asked", turn.request)
        yield from _labelled("answer", _reply(turn.reply.content, turn.reply.tool_calls))
        if turn.words:
            yield from _labelled("then", turn.words)


def _whole(queue: Queue, entry: Entry) -> Iterator[str]:
    row = queue.text(entry)
    parts = (
        {"": row["messages"]} if entry.kind == "conversation" else {name: row[name] for name in ("prompt", "chosen", "rejected")}
    )
    for name, messages in parts.items():
        yield from [f"{name}:"] if name else []
        for message in messages:
            yield from _labelled(message["role"], _reply(message["content"], message["tool_calls"] or ()), most=None)


def _past(history: Sequence[Decision]) -> Iterator[str]:
    for one in history:
        yield f"{' ' * _INDENT}{_told(one)}"
        if one.text is not None:
            yield from _labelled(f"turn {one.turn}", one.text, most=None)


def _reply(content: str, calls: Sequence) -> str:
    fields = [(call["name"], call["arguments"]) if isinstance(call, dict) else (call.name, call.arguments) for call in calls]
    return " ".join([content, *(f"{name}({arguments})" for name, arguments in fields)]).strip()


def _labelled(label: str, text: str, most: int | None = _SHOWN) -> Iterator[str]:
    """Yield a text with its label, broken at the terminal's width."""
    import shutil
    import textwrap

    plain = printable(text if most is None or len(text) <= most else f"{text[: most - 3]}...")
    width = min(shutil.get_terminal_size().columns, 120)
    begin = f"{' ' * _INDENT}{label + ':':11}"
    for number, line in enumerate(plain.splitlines() or [""]):
        lead = begin if number == 0 else " " * len(begin)
        yield (textwrap.fill(line, width, initial_indent=lead, subsequent_indent=" " * len(begin)) or lead).rstrip()
