"""What `clawpipe review` prints of rows, decisions and counts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from clawpipe.cli.output import printable

if TYPE_CHECKING:
    from clawpipe.core.basics.json_types import JsonObject
    from clawpipe.record.reviews.decisions import Decision
    from clawpipe.record.reviews.queue import Entry, Queue

_SHOWN = 300  # characters of a text in the list
_INDENT = 7


def decision_line(one: Decision) -> str:
    from clawpipe.record.reviews.decisions import told

    return printable(told(one))


def row_as_json(queue: Queue, entry: Entry) -> JsonObject:
    from clawpipe.record.reviews.queue import parts_of

    text = {name or "messages": messages for name, messages in parts_of(entry, queue.text(entry)).items()}
    return entry.as_json() | {"text": text}


def counts_of(entries: Sequence[Entry]) -> JsonObject:
    decided = [one.decision.verdict for one in entries if one.decided and one.decision]
    verdicts = {verdict: decided.count(verdict) for verdict in ("approved", "rejected", "edited")}
    return {"waiting": len(entries) - len(decided), **verdicts}


def heading(entries: Sequence[Entry], shown: int) -> str:
    counts = counts_of(entries)
    others = ", ".join(f"{count} {name}" for name, count in counts.items() if name != "waiting")
    cut = f", {shown} shown" if shown < counts["waiting"] else ""
    waits = "1 row waits" if counts["waiting"] == 1 else f"{counts['waiting']} rows wait"
    return f"{waits}{cut} ({others}); the most uncertain first"


def head_lines(entry: Entry) -> Iterator[str]:
    owner = [f"{name} {value}" for name, value in (("session", entry.session), ("user", entry.user)) if value]
    yield printable(f"{entry.uncertainty:5.2f}  {entry.row_id}")
    yield printable(f"{' ' * _INDENT}{', '.join([f'{entry.source} {entry.kind}', *owner])}")
    if entry.decided and entry.decision:
        yield f"{' ' * _INDENT}{decision_line(entry.decision)}"
    for line in _scores(entry):
        yield f"{' ' * _INDENT}{line}"


def _scores(entry: Entry) -> Iterator[str]:
    if not entry.opinions:
        yield "nobody has scored it"
    for one in entry.opinions:
        of = "" if one.turn is None else f" of turn {one.turn}"
        votes = " votes " + " ".join("?" if vote is None else f"{vote:+d}" for vote in one.votes) if one.votes else ""
        yield printable(f"{one.value:+.2g}{of} by {one.scorer}" + (f": {one.reason}" if one.reason else "") + votes)


def row_lines(queue: Queue, entry: Entry) -> Iterator[str]:
    """Yield a row with its last exchange, or the sides of a pair."""
    yield from head_lines(entry)
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


def whole_lines(queue: Queue, entry: Entry) -> Iterator[str]:
    row = queue.text(entry)
    parts = (
        {"": row["messages"]} if entry.kind == "conversation" else {name: row[name] for name in ("prompt", "chosen", "rejected")}
    )
    for name, messages in parts.items():
        yield from [f"{name}:"] if name else []
        for message in messages:
            yield from _labelled(message["role"], _reply(message["content"], message["tool_calls"] or ()), most=None)


def past_lines(history: Sequence[Decision]) -> Iterator[str]:
    for one in history:
        yield f"{' ' * _INDENT}{decision_line(one)}"
        if one.text is not None:
            yield from _labelled(f"turn {one.turn}", one.text, most=None)


def _reply(content: str, calls: Sequence[Any]) -> str:
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
