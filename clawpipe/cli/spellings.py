"""Old spellings of the command line: they go on working, and a line on stderr names the new one.

One meaning a flag: `-o` is a setting, `--output` a place that is written, `-l` the most that is shown, `--model` a model; what a
command reads stands without a flag, and so does the version that it is about, as NAME@3.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import typer
from typer.core import TyperCommand

from clawpipe.cli.output import without_markup

_NO_FLAG = ""  # the value stands by itself
Former = Mapping[str | int, str]  # old flag, or place of an old argument (from 1) -> new flag
_LIMIT: Former = {"-n": "--limit"}

FORMER: Mapping[str, Former] = {
    "atropos": {"--out": "--output", "-o": "--output", "-n": "--batches", "--max-tokens": "--max-length"},
    "batch": {"--input": _NO_FLAG, "-i": _NO_FLAG, "-o": "--output", "--no-save-tool-calls": "--text-only"},
    "connect": {"--mcp": "--training-tools"},
    "contract check": {"-c": "--contract", **_LIMIT},
    "datasets list": {"-n": "--name"},
    "datasets show": _LIMIT,
    "env plant": {1: "--output"},
    "env test": {"--output-dir": "--output", "--max-new-tokens": "--max-tokens"},
    "export": {"--out": "--output", "-o": "--output", "-f": "--format"},
    "gateway": {"--follow": _NO_FLAG},
    "ingest": {"--night": "--output"},
    "init": {"-o": "--output"},
    "inspect": _LIMIT,
    "judge try": {"-s": "--scorer", **_LIMIT},
    "models export": {2: "--output", "-f": "--format"},
    "plan": {"--check": "--check-model"},
    "process": {"--input": _NO_FLAG, "-i": _NO_FLAG, "-o": "--output", "-f": "--format"},
    "report": {"-n": "--night"},
    "review list": _LIMIT,
    "status": {"-n": "--night"},
    "sweep": {"-n": "--trials"},
    "train": {"--data": _NO_FLAG, "-d": _NO_FLAG},
}


class PlainCommand(TyperCommand):
    """A command whose help is shown as it is written, brackets included."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        told: list[Any] = [self, *self.params]
        for one in told:
            one.help = without_markup(one.help or "")


def command_class(words: str) -> type[TyperCommand]:
    """Return the class of the command that these words start, which takes its old spellings, too."""

    class Command(PlainCommand):
        def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
            return super().parse_args(ctx, _rewritten(self, args, FORMER[words]))

    return Command if words in FORMER else PlainCommand


def _rewritten(command: TyperCommand, words: list[str], former: Former) -> list[str]:
    """Return the words in today's spelling; say on stderr which were not."""
    with_value = {name for option in command.params if _takes_value(option) for name in option.opts}
    with_value |= {old for old, new in former.items() if isinstance(old, str) and new in {_NO_FLAG, *with_value}}
    written, told = list[str](), dict[str, None]()
    left, place = iter(words), 0
    for word in left:
        if word == "--":
            written += [word, *left]
            break
        flag, value = _parted(word, former)
        place += not flag
        new = former.get(flag or place)
        if value is None and flag in with_value:
            value = next(left, None)
        if new is not None:
            told[_advice(flag, new, value)] = None
        name = flag if new is None else new
        written += [*([name] if name else []), *([] if value is None else [value])]
    for line in told:
        typer.echo(f"clawpipe: {line}", err=True)
    return written


def _takes_value(parameter: Any) -> bool:
    return parameter.param_type_name == "option" and not parameter.is_flag and not parameter.count


def _parted(word: str, former: Former) -> tuple[str, str | None]:
    """Return a word's flag, empty for a value by itself, and the value that is in the word. `-ofile` is an old flag with one."""
    if not word.startswith("-") or word == "-":
        return _NO_FLAG, word
    if not word.startswith("--"):
        return (word[:2], word[2:]) if word[:2] in former and word[2:] else (word, None)
    flag, separator, value = word.partition("=")
    return flag, value if separator else None


def _advice(flag: str, new: str, value: str | None) -> str:
    if not new:
        return f"write {value or 'the value'} by itself, without {flag}"
    return f"write {new} in place of {flag}" if flag else f"write {new} {value} in place of {value}"
