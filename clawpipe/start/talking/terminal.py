"""Talk in the terminal: a person writes lines, and one or two models answer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.core.basics.words import plain
from clawpipe.core.conversation.messages import ToolCall
from clawpipe.errors import ClawpipeError, DataError
from clawpipe.start.talking.bench import Bench
from clawpipe.start.talking.line import Line

HELP = """/good                 the last answer was good
/bad [what is right]  the last answer was bad; with what is right, a correction
/new                  begin a new conversation
/help                 show this
/quit                 end; so does Ctrl-D"""
_MOST_CALLS = 8  # replies with calls to one line


class Speaker(NamedTuple):
    """A model that answers, and where its tools run."""

    line: Line
    bench: Bench


class Talk:
    """A person's talk with models.

    Args:
        speakers: the first one's answers are judged by /good and /bad.
        write: writes a text as it is, without a line's end.
    """

    def __init__(self, speakers: Sequence[Speaker], write: Callable[[str], None]) -> None:
        self._speakers, self._write = speakers, lambda text: write(plain(text))

    def hear(self, text: str) -> bool:
        """Take what the person has written. Returns False where the talk is over."""
        command, _, rest = text.strip().partition(" ")
        try:
            if not command.startswith("/"):
                self._answer(text)
            elif command == "/quit":
                return False
            else:
                self._obey(command, rest.strip())
        except ClawpipeError as error:
            self._write(f"{error}\n")
        return True

    def _obey(self, command: str, rest: str) -> None:
        first = self._speakers[0].line
        match command:
            case "/good":
                first.judge("up")
                self._write("noted as good\n")
            case "/bad":
                first.judge("down", rest)
                self._write("noted as bad, with what is right\n" if rest else "noted as bad\n")
            case "/new":
                for line, bench in self._speakers:
                    line.begin()
                    bench.begin()
                self._write("a new conversation\n")
            case "/help":
                self._write(f"{HELP}\n")
            case _:
                raise DataError(f"there is no {command}", "chat", "/help shows what there is")

    def _answer(self, text: str) -> None:
        if not text.strip():
            return
        for line, bench in self._speakers:
            said = len(line.messages)
            line.messages.append({"role": "user", "content": text})
            try:
                self._converse(line, bench)
            except ClawpipeError:
                del line.messages[said:]  # as if it had not been said
                raise

    def _converse(self, line: Line, bench: Bench) -> None:
        """Let a model answer, and call tools before it does."""
        for _ in range(_MOST_CALLS):
            self._write(f"{line.card.name} {line.card.version}> ")
            message = line.ask(self._write)
            self._write("\n" if message["content"] or not message.get("tool_calls") else "")
            if not message.get("tool_calls"):
                return
            for result, call in zip(bench.run(line.messages), message["tool_calls"], strict=True):
                self._write(f"  {_shown(call['function'])} -> {result['content']}\n")
                line.messages.append(result)
        raise DataError(f"{_MOST_CALLS} replies with calls and no answer", "chat", "begin anew with /new")


def _shown(function: JsonObject) -> str:
    return f"{function['name']}({function['arguments']})"


def asked_by_hand(call: ToolCall) -> str:
    """Ask the person for a call's result; the end of the input is an error as a tool would give it."""
    try:
        return input(f"  {call.name}({call.arguments}) cannot be run here. Its result> ")
    except EOFError:
        return "error: no result"
