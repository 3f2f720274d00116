"""`clawpipe inspect`: show the conversations in the files that an agent has written."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from clawpipe.cli.output import JsonFlag, print_json, wrapped
from clawpipe.json_types import JsonObject
from clawpipe.words import plain

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions
    from rich.text import Text

    from clawpipe.importers.reading import Record
    from clawpipe.importers.record import Conversation, Judgement, Preference, Tokens
    from clawpipe.importers.survey import Survey
    from clawpipe.messages import Message

_WIDTH = 400  # most characters of a message to show
_RUN = 40  # most tokens of a run to show
_LABEL = 16  # width of the label before a line
_NARROWEST = 20
_STYLES = {"context": "dim", "trained": "green", "trained +": "bold green", "trained -": "bold red", "trained 0": "yellow"}


@dataclass(frozen=True)
class _Labelled:
    """A text beside its label; the text never runs below the label, however narrow the terminal."""

    label: str
    text: Text

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Text]:
        from rich.text import Text

        for number, line in enumerate(self.text.wrap(console, max(options.max_width - _LABEL - 2, _NARROWEST))):
            yield Text.assemble((f"{self.label if not number else '':>{_LABEL}}  ", "dim"), line)


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
    limit: Annotated[int, typer.Option("--limit", "-n", min=0, help="Conversations, preferences and prompts to show.")] = 3,
    tokenizer: Annotated[Path | None, typer.Option("--tokenizer", help="Folder of a tokenizer, to show tokens as text.")] = None,
    json_output: JsonFlag = False,
) -> None:
    """Show the conversations in trajectory files: turns, trained tokens, scores, hints.

    Formats are recognised by content: Hermes and MonoClaw rows and sessions, OpenClaw-RL turn and judge records, Atropos groups,
    OpenAI chat, data sets with preferences, completions or prompts, rows that clawpipe exported. Nothing is stored. A line that
    cannot be read is counted with its reason, file, number and offset.
    """
    from clawpipe.importers.mapping import read_mapping
    from clawpipe.importers.read import read_stream
    from clawpipe.importers.reading import Reading
    from clawpipe.importers.survey import Survey

    decode = decoder(tokenizer)
    reading, survey, first = Reading(), Survey(), []
    for record in read_stream(paths, format, reading, mapping=read_mapping(map_ or ())):
        survey.add(record)
        if len(first) < limit and _is_shown(record):
            first.append(record)
    overview = survey.as_dict(reading)
    if json_output:
        print_json(overview)
        return
    from rich.console import Console

    console = Console(highlight=False)
    for number, record in enumerate(first, 1):
        console.print(*shown(number, record, decode), sep="\n")
    for line in _summary(overview, survey):
        console.print(wrapped(line, console.width), markup=False, soft_wrap=True)
    for warning in overview["warnings"]:
        console.print(wrapped(f"WARNING: {warning}", console.width), style="bold red", markup=False, soft_wrap=True)


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
    from clawpipe.importers.reading import Refusal

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


def shown(number: int, record: Any, decode: Callable[[Sequence[int]], str]) -> Iterator[_Labelled | Text]:
    """Yield a conversation, preference or prompt line by line."""
    from rich.text import Text

    from clawpipe.importers.record import Conversation, Preference

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


def _turns(conversation: Conversation) -> Iterator[_Labelled]:
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


def _sides(preference: Preference) -> Iterator[_Labelled]:
    yield from (_line(message) for message in preference.prompt)
    yield from (_line(message, f"chosen {message.role}", "green") for message in preference.chosen)
    yield from (_line(message, f"rejected {message.role}", "red") for message in preference.rejected)


def _line(message: Message, label: str = "", style: str = "") -> _Labelled:
    calls = [f"{call.name}({call.arguments})" + (" (malformed)" if call.malformed else "") for call in message.tool_calls]
    text = "\n".join(filter(None, [message.content, *calls]))
    text = text if len(text) <= _WIDTH else f"{text[:_WIDTH]}... ({len(text)} characters)"
    return _labelled(label or message.role, text, style)


def _judged(judgement: Judgement) -> _Labelled:
    text = f"{judgement.origin} {judgement.value:g}" + (f": {judgement.reason}" if judgement.reason else "")
    return _labelled("", text + "".join(f"\nhint: {hint}" for hint in judgement.hints), "yellow")


def _token_runs(tokens: Tokens, decode: Callable[[Sequence[int]], str]) -> Iterator[_Labelled]:
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


def _labelled(label: str, text: str, style: str) -> _Labelled:
    from rich.text import Text

    return _Labelled(label, Text(plain(text), style))
