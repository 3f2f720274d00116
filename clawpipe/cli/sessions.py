"""`clawpipe sessions`: list, show, end and export the sessions that the gateway has captured, with the status of their turns."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from clawpipe.cli.output import JsonFlag, print_json

if TYPE_CHECKING:
    from clawpipe.data.ingest.captured.captured_sessions import SessionStatus
    from clawpipe.record.lineage.exposure import Exposure

app = typer.Typer(help="Captured sessions: list them, show one, end one, export one.", no_args_is_help=True)

IdArgument = Annotated[str, typer.Argument(metavar="ID", help="The session's id, as `clawpipe sessions list` shows it.")]


@app.command("list")
def list_sessions(json_output: JsonFlag = False) -> None:
    """List the captured sessions, the last used one first: turns, tokens, feedback, and the statuses of the turns."""
    from clawpipe.core.store.home import Home
    from clawpipe.data.ingest.captured.captured_sessions import captured_sessions

    found = captured_sessions(Home.from_env())
    if json_output:
        print_json({"sessions": [one.model_dump(mode="json", exclude={"turns"}) for one in found]})
        return
    for one in found:
        typer.echo(_line(one))
    if not found:
        typer.echo("no sessions yet: `clawpipe gateway` and `clawpipe serve --capture` capture them")


@app.command("show")
def show(session: IdArgument, json_output: JsonFlag = False) -> None:
    """Show the turns of a session: what each continues, its tokens, its feedback and its status.

    A turn goes on (its session has not ended), waits to be read in, is stored, or was rejected with a reason. Datasets that hold
    its rows, what each night did with them and why it left some out, and models that learned from them follow.
    """
    from clawpipe.core.store.home import Home
    from clawpipe.data.forgotten.subject import Subject
    from clawpipe.data.ingest.captured.captured_sessions import captured_session
    from clawpipe.record.lineage.exposure import exposure

    home = Home.from_env()
    found, exposed = captured_session(home, session), exposure(home, Subject(session=session))
    if json_output:
        uses = exposed.model_dump(mode="json", include={"datasets", "nights", "models"})
        print_json(found.model_dump(mode="json") | uses)
        return
    typer.echo("\n".join(_lines(found, exposed)))


@app.command("close")
def close(session: IdArgument, json_output: JsonFlag = False) -> None:
    """End a session, so that the next ingest reads it; else it ends after an hour without a turn, or as `sessions.yaml` says."""
    import time

    from clawpipe.core.store.home import Home
    from clawpipe.data.capture.records import Done, line_of
    from clawpipe.data.capture.segments import Segment, segments_dir
    from clawpipe.data.ingest.captured.captured_sessions import captured_session

    home = Home.from_env()
    found = captured_session(home, session)
    segment = Segment(segments_dir(home))
    segment.append(line_of(Done(time.time(), found.key, found.session)))
    segment.close()
    if json_output:
        print_json({"session": session, "closed": True})
    else:
        typer.echo(f"{session} has ended")


@app.command("export")
def export(session: IdArgument) -> None:
    """Print the records of a session as JSON Lines: requests, answers, tokens, feedback."""
    import sys

    import msgspec

    from clawpipe.core.store.home import Home
    from clawpipe.data.ingest.captured.captured_sessions import captured_records, captured_session

    home = Home.from_env()
    turns = captured_session(home, session).turns
    ids = {name for turn in turns for name in (turn.id, turn.response_id) if name}
    for _, _, record in captured_records(home):
        if getattr(record, "session", None) == session or getattr(record, "response_id", None) in ids:
            sys.stdout.write(msgspec.json.encode(record).decode() + "\n")


def _line(one: SessionStatus) -> str:
    tokens = f"{one.with_tokens} with tokens" if one.with_tokens else "text"
    statuses = ", ".join(f"{count} {status}" for status, count in one.statuses.items())
    feedback = f", {one.feedback} feedback records" if one.feedback else ""
    return f"{one.last}  {one.session}  {one.key}  {one.main} main, {one.side} side, {tokens}{feedback}  {statuses}"


def _lines(one: SessionStatus, exposed: Exposure) -> Iterator[str]:
    from clawpipe.record.lineage.exposure import night_line

    yield _line(one)
    yield f"  id from {one.session_from}; {'has ended' if one.closed else 'goes on'}" + (
        f"; started by {one.parent}" if one.parent else ""
    )
    for turn in one.turns:
        after = f" {turn.continues}" if turn.continues else ""
        tokens = f"{turn.tokens} tokens" if turn.tokens else f"text ({turn.no_tokens})"
        place = turn.trajectory_id or turn.reason or ""
        yield f"  {turn.number:>3}  {turn.time}  {turn.turn_type}  {turn.relation}{after}  {tokens}  {turn.status} {place}".rstrip()
        yield from (f"       feedback: {one['value']} {one['comment'] or ''}".rstrip() for one in turn.feedback)
    yield from (f"  in {held.name} {held.digest[:12]}: {held.rows} rows" for held in exposed.datasets)
    yield from (f"  {night_line(one)}" for one in exposed.nights)
    yield from (
        f"  learned from it: {model.name}@{model.version} (night {model.night}), {model.rows} rows" for model in exposed.models
    )
