"""`clawpipe inspect`: what is in the files that an agent left behind."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from clawpipe.cli.output import JsonFlag, print_json

if TYPE_CHECKING:
    from rich.text import Text

    from clawpipe.importers.read import Reading
    from clawpipe.importers.record import Conversation
    from clawpipe.messages import Message

_WIDTH = 400  # characters of a message that are shown


def inspect(
    paths: Annotated[list[str], typer.Argument(help="Files, folders or patterns; .gz and .zst are unpacked; - is standard input.")],
    limit: Annotated[int, typer.Option("--limit", "-n", min=0, help="Conversations to show.")] = 3,
    json_output: JsonFlag = False,
) -> None:
    """Show the conversations in trajectory files: turns, what is trained, scores, hints.

    Formats are recognised by content: Hermes and MonoClaw rows, OpenClaw-RL turn and judge records, Atropos groups, OpenAI chat.
    Nothing is stored. A line that cannot be read is counted with its reason, its file, number and offset.
    """
    from clawpipe.importers.read import read_files

    reading = read_files(paths)
    if json_output:
        print_json(_facts(reading))
        return
    from rich.console import Console

    console = Console(highlight=False)
    for number, conversation in enumerate(reading.conversations[:limit], 1):
        console.print(*_shown(number, conversation), sep="\n")
    console.print(*_summary(reading), sep="\n", markup=False)


def _facts(reading: Reading) -> dict[str, Any]:
    kinds = [kind for conversation in reading.conversations for kind in conversation.kinds]
    return {
        "files": reading.files,
        "lines": reading.lines,
        "accepted": reading.lines - len(reading.refused),
        "refused": reading.reasons(),
        "formats": dict(reading.formats),
        "conversations": len(reading.conversations),
        "sessions": len({conversation.session for conversation in reading.conversations} - {None}),
        "turns": {"main": kinds.count("main"), "side": kinds.count("side")},
        "with_tokens": sum(conversation.tokens is not None for conversation in reading.conversations),
        "scored": sum(bool(conversation.judgements) for conversation in reading.conversations),
    }


def _summary(reading: Reading) -> Iterable[str]:
    facts = _facts(reading)
    yield f"{facts['conversations']} conversations in {facts['lines']} lines of {facts['files']} files"
    yield f"turns: {facts['turns']['main']} main, {facts['turns']['side']} side"
    yield f"with tokens: {facts['with_tokens']}, with a score: {facts['scored']}"
    for reason, count in sorted(facts["refused"].items()):
        first = next(refusal for refusal in reading.refused if refusal.reason == reason)
        yield f"set aside: {count} x {reason}, first at {first.file}:{first.line}"
    if facts["conversations"] and not facts["turns"]["main"]:
        yield "WARNING: every turn is a side turn: nothing of this would be trained on"


def _shown(number: int, conversation: Conversation) -> Iterable[Text]:
    from rich.text import Text

    yield Text(f"[{number}] {conversation.session or conversation.group or ''}".rstrip(), style="bold")
    turn = 0
    for message in conversation.messages:
        side = message.role == "assistant" and conversation.kinds[turn] == "side"
        yield _line(message, side)
        if message.role == "assistant":
            yield from (_judged(judgement) for judgement in conversation.judgements if judgement.turn == turn)
            turn += 1
    yield from (_judged(judgement) for judgement in conversation.judgements if judgement.turn is None)
    yield Text("")


def _line(message: Message, side: bool) -> Text:
    from rich.text import Text

    calls = [f"{call.name}({call.arguments})" + (" (malformed)" if call.malformed else "") for call in message.tool_calls]
    said = "\n".join(filter(None, [message.content, *calls]))
    said = said if len(said) <= _WIDTH else f"{said[:_WIDTH]}... ({len(said)} characters)"
    trained = message.role == "assistant" and not side
    return Text(f"{message.role + (' (side)' if side else ''):>16}  ", style="dim").append(said, style="green" if trained else "")


def _judged(judgement: Any) -> Text:
    from rich.text import Text

    said = f"{judgement.origin} {judgement.value:g}" + (f": {judgement.reason}" if judgement.reason else "")
    hints = "".join(f"\n{'':>18}hint: {hint}" for hint in judgement.hints)
    return Text(f"{'':>18}{said}{hints}", style="yellow")
