"""`clawpipe inspect`: show the conversations in the files that an agent has written."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from clawpipe.cli.labelled import Labelled
from clawpipe.cli.output import JsonFlag, print_json, wrapped
from clawpipe.core.basics.json_types import JsonObject
from clawpipe.core.basics.words import plain

if TYPE_CHECKING:
    from rich.text import Text

    from clawpipe.cli.tokens import Seen
    from clawpipe.core.conversation.messages import Message
    from clawpipe.data.importers.read.reading import Record
    from clawpipe.data.importers.read.survey import Survey
    from clawpipe.data.importers.record import Conversation, Judgement, Preference, Tokens

_WIDTH = 400  # most characters of a message to show
_RUN = 40  # most tokens of a run to show
_STYLES = {"context": "dim", "trained": "green", "trained +": "bold green", "trained -": "bold red", "trained 0": "yellow"}


def inspect(
    paths: Annotated[
        list[str],
        typer.Argument(help="Files, folders, patterns, pipes, s3:// and https:// URLs, packed or not; - is stdin."),
    ],
    format: Annotated[
        str, typer.Option("--format", help="Name of the format, or your file.py:NAME; lines of any other format are rejected.")
    ] = "auto",
    map_: Annotated[
        list[str] | None,
        typer.Option("--map", metavar="TARGET=PATH", help="Field of the records, e.g. messages=data.turns or reward=score."),
    ] = None,
    limit: Annotated[int, typer.Option("--limit", "-l", min=0, help="Conversations, preferences and prompts to show.")] = 3,
    tokenizer: Annotated[Path | None, typer.Option("--tokenizer", help="Folder of a tokenizer, to show tokens as text.")] = None,
    tokens: Annotated[bool, typer.Option("--tokens", help="Show rows as --model will see them, with masks and ends.")] = False,
    model: Annotated[
        str, typer.Option("--model", "-m", help="Base model of --tokens: built-in name, hub id or directory.")
    ] = "smollm2-135m-instruct",
    tool_call_format: Annotated[
        str | None, typer.Option(help="Tool-call format of --tokens; the model's own as `clawpipe init` finds it.")
    ] = None,
    json_output: JsonFlag = False,
) -> None:
    """Show the conversations in trajectory files: turns, trained tokens, scores, hints.

    Formats of some 45 programs and data sets are recognised by content; docs/inspect.md lists them. Nothing is stored. A line that
    cannot be read is counted with all reasons, file, number and offset.
    """
    from clawpipe.data.importers.read.mapping import read_mapping
    from clawpipe.data.importers.read.read import read_stream
    from clawpipe.data.importers.read.reading import Reading
    from clawpipe.data.importers.read.survey import Survey

    see = _seer(model, tool_call_format) if tokens else None
    decode = decoder(tokenizer)
    reading, survey, first = Reading(), Survey(), []
    for record in read_stream(paths, format, reading, mapping=read_mapping(map_ or ())):
        survey.add(record)
        if len(first) < limit and _is_shown(record):
            first.append(record)
    overview = survey.as_dict(reading)
    if json_output:
        print_json(overview | ({"rows": list(_rows(first, see))} if see else {}))
        return
    from rich.console import Console

    console = Console(highlight=False)
    for number, record in enumerate(first, 1):
        console.print(*(_as_seen(number, record, see) if see else shown(number, record, decode)), sep="\n")
    for line in _summary(overview, survey):
        console.print(wrapped(line, console.width), markup=False, soft_wrap=True)
    for warning in overview["warnings"]:
        console.print(wrapped(f"WARNING: {warning}", console.width), style="bold red", markup=False, soft_wrap=True)


def _seer(model: str, tool_call_format: str | None) -> Callable[[Conversation], Seen]:
    from clawpipe.cli.tokens import seer

    return seer(model, tool_call_format)


def _rows(records: Sequence[Any], see: Callable[[Conversation], Seen]) -> Iterator[JsonObject]:
    """Yield the conversations among the records as a model sees them."""
    from clawpipe.data.importers.record import Conversation

    for record in records:
        if isinstance(record, Conversation):
            file = {"file": record.origin.file, "line": record.origin.line} if record.origin else {}
            yield {"session": record.session} | file | see(record).as_dict()


def _as_seen(number: int, record: Any, see: Callable[[Conversation], Seen]) -> Iterator[Any]:
    """Yield a heading and a conversation as a model sees it; other records as they are."""
    from rich.text import Text

    from clawpipe.data.importers.record import Conversation

    if not isinstance(record, Conversation):
        yield from shown(number, record, str)
        return
    yield Text(plain(f"[{number}] {' · '.join(_heading(record))}"), style="bold")
    yield from see(record).lines()
    yield Text("")


def decoder(folder: Path | None) -> Callable[[Sequence[int]], str]:
    """Return a function from token ids to text; without a tokenizer, to the ids as text."""
    if folder is None:
        return lambda ids: " ".join(map(str, ids))
    from clawpipe.errors import NotFoundError

    file = folder / "tokenizer.json"
    if not file.is_file():
        raise NotFoundError("no tokenizer", str(file), "name a folder with a tokenizer.json")
    from tokenizers import Tokenizer

    loaded = Tokenizer.from_file(str(file))
    return lambda ids: loaded.decode(list(ids), skip_special_tokens=False)


def _is_shown(record: Record) -> bool:
    from clawpipe.data.importers.read.reading import Refusal

    return not isinstance(record, Refusal)


def _summary(overview: JsonObject, survey: Survey) -> Iterable[str]:
    contents = f"{overview['conversations']} conversations of {overview['sessions']} sessions"
    yield f"{contents} in {overview['lines']} lines of {overview['files']} files"
    yield f"turns: {overview['turns']['main']} main, {overview['turns']['side']} side"
    yield f"with tokens: {overview['with_tokens']}, with a score: {overview['scored']}, with a hint: {overview['hinted']}"
    for name in ("preferences", "prompts", "tool_calls", "tool_errors"):
        if overview[name]:
            yield f"{name.replace('_', ' ')}: {overview[name]}"
    for reason, count in sorted(overview["refused"].items()):
        place = survey.first[reason]
        yield f"rejected: {count} x {reason}, first at {place.file}:{place.line}"


def shown(number: int, record: Any, decode: Callable[[Sequence[int]], str]) -> Iterator[Labelled | Text]:
    """Yield a conversation, preference or prompt line by line."""
    from rich.text import Text

    from clawpipe.data.importers.record import Conversation, Preference

    yield Text(plain(f"[{number}] {' · '.join(_heading(record))}"), style="bold")
    if isinstance(record, Conversation):
        yield from _turns(record)
        yield from _token_runs(record.tokens, decode) if record.tokens else ()
    elif isinstance(record, Preference):
        yield from _sides(record)
    else:
        yield from (_line(message) for message in record.messages)
    yield Text("")


def _heading(record: Any) -> Iterator[str]:
    for name in ("session", "group", "user", "model", "status"):
        if value := getattr(record, name, None):
            yield f"{name} {value}"
    if getattr(record, "tool_calls", None):
        yield f"{record.tool_calls} tool calls, {record.tool_errors or 0} failed"
    if record.origin:
        yield f"{record.origin.format} {record.origin.file}:{record.origin.line}"


def _turns(conversation: Conversation) -> Iterator[Labelled]:
    turn = 0
    for message in conversation.messages:
        if message.role != "assistant":
            yield _line(message)
            continue
        side = conversation.kinds[turn] == "side"
        yield _line(message, "assistant (side)" if side else "assistant", "" if side else "green")
        yield from (_judged(judgement) for judgement in conversation.judgements if judgement.turn == turn)
        turn += 1
    yield from (_judged(judgement) for judgement in conversation.judgements if judgement.turn is None)


def _sides(preference: Preference) -> Iterator[Labelled]:
    yield from (_line(message) for message in preference.prompt)
    yield from (_line(message, f"chosen {message.role}", "green") for message in preference.chosen)
    yield from (_line(message, f"rejected {message.role}", "red") for message in preference.rejected)


def _line(message: Message, label: str = "", style: str = "") -> Labelled:
    calls = [f"{call.name}({call.arguments})" + (" (malformed)" if call.malformed else "") for call in message.tool_calls]
    text = "\n".join(filter(None, [message.content, *calls]))
    text = text if len(text) <= _WIDTH else f"{text[:_WIDTH]}... ({len(text)} characters)"
    return _labelled(label or message.role, text, style)


def _judged(judgement: Judgement) -> Labelled:
    text = f"{judgement.origin} {judgement.value:g}" + (f": {judgement.reason}" if judgement.reason else "")
    return _labelled("", text + "".join(f"\nhint: {hint}" for hint in judgement.hints), "yellow")


def _token_runs(tokens: Tokens, decode: Callable[[Sequence[int]], str]) -> Iterator[Labelled]:
    """Yield runs of tokens of one kind: context, or trained with one sign of the advantage."""
    advantages = tokens.advantages or [None] * len(tokens.ids)
    kinds = [_kind(kept, advantage) for kept, advantage in zip(tokens.mask, advantages, strict=True)]
    for kind, places in groupby(range(len(kinds)), key=kinds.__getitem__):
        run = list(places)
        ids = [tokens.ids[place] for place in run]
        cut = f" ... ({len(ids)} tokens)" if len(ids) > _RUN else ""
        yield _labelled(kind, decode(ids[:_RUN]) + cut + _numbers(tokens, run, kind), _STYLES[kind])


def _kind(kept: bool, advantage: float | None) -> str:
    if not kept or advantage is None:
        return "trained" if kept else "context"
    return "trained +" if advantage > 0 else "trained -" if advantage < 0 else "trained 0"


def _numbers(tokens: Tokens, run: Sequence[int], kind: str) -> str:
    """Return the means of log-probs and advantages over a run."""
    if kind == "context":
        return ""
    columns = {"log-prob": tokens.logprobs, "advantage": tokens.advantages}
    means = [
        f"{name} {sum(column[place] for place in run) / len(run):+.3g}" for name, column in columns.items() if column is not None
    ]
    return f"  ({', '.join(means)})" if means else ""


def _labelled(label: str, text: str, style: str) -> Labelled:
    from rich.text import Text

    return Labelled(label, Text(plain(text), style))
