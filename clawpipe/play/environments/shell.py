"""A shell tool over a sandbox: the policy calls `bash`, and reads what the command wrote and its exit code."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from clawpipe.core.basics.schemas import argument_error
from clawpipe.core.conversation.messages import Message, ToolCall, ToolSpec
from clawpipe.data.wire.arguments import arguments_of
from clawpipe.play.environments.base import Answer
from clawpipe.play.sandbox.base import Result, Sandbox

BASH = ToolSpec("bash", "Run a command in the shell. Each command starts in the working folder.", {"command": "string"})
_LONGEST = 100_000  # bytes of a command: the kernel takes 128 KiB as one argument
_RUN = 'cd -- "$1" || exit; exec "$(command -v bash || command -v sh)" -c "$2"'

_ENDS = {
    "output": "ended: too much output",
    "memory": "ended: too much memory",
    "disk": "ended: too much disk space",
    "files": "ended: too many files",
    "died": "the sandbox has died",
}


@dataclass(frozen=True)
class ShellLimits:
    """What an episode may do with its shell.

    Attributes:
        seconds: of a command.
        steps: commands of an episode.
        characters: of a reply's output; of a longer one, the policy reads head and tail.
    """

    seconds: float = 10.0
    steps: int = 20
    characters: int = 4000


class Shell:
    """The shell of an episode.

    Args:
        sandbox: whose owner closes it.
        folder: in which each command starts; ".": where the sandbox starts its commands.
        variables: of the commands.

    Attributes:
        steps: commands that the policy has called, run or refused.
    """

    def __init__(
        self, sandbox: Sandbox, limits: ShellLimits, folder: str = ".", variables: Mapping[str, str] | None = None
    ) -> None:
        self._sandbox, self._limits, self._folder, self._variables = sandbox, limits, folder, variables
        self._alive = True
        self.steps = 0

    def respond(self, messages: Sequence[Message]) -> Answer:
        """Run what the last message calls, in order. Done: it calls nothing, no steps are left, or the sandbox is gone."""
        calls = messages[-1].tool_calls
        replies = [Message("tool", self._reply(call), tool_call_id=call.id, name=call.name) for call in calls]
        return Answer(replies, done=not calls or not self._alive or self.steps >= self._limits.steps)

    def run(self, command: str) -> str:
        """Return what the policy reads of a command that it has called."""
        if "\0" in command or len(data := command.encode(errors="replace")) > _LONGEST:
            return f"error: a command has no NUL and at most {_LONGEST} bytes"
        argv = ["/bin/sh", "-c", _RUN, "sh", self._folder, data.decode()]
        result = self._sandbox.exec(argv, seconds=self._limits.seconds, env=self._variables)
        self._alive = result.ended != "died"
        return shown(result, self._limits)

    def _reply(self, call: ToolCall) -> str:
        if not self._alive or self.steps >= self._limits.steps:
            return "error: the episode is over"
        self.steps += 1
        if call.malformed:
            return "error: malformed call"
        if call.name != BASH.name:
            return f"error: unknown tool {call.name}"
        arguments = arguments_of(call)
        wrong = argument_error(BASH.parameters, arguments)
        return f"error: {wrong}" if wrong else self.run(arguments["command"])


def shown(result: Result, limits: ShellLimits) -> str:
    """Return a command's output, cut in the middle, and how it ended."""
    output = cut(result.text, limits.characters)
    if output and not output.endswith("\n"):
        output += "\n"
    return f"{output}[{_end(result, limits)}]"


def cut(text: str, characters: int) -> str:
    """Return a text of at most so many characters whole, of a longer one the head and the tail."""
    if len(text) <= characters:
        return text
    head = characters // 2
    tail = characters - head
    return f"{text[:head]}\n[... {len(text) - characters} characters left out ...]\n{text[-tail:]}"


def _end(result: Result, limits: ShellLimits) -> str:
    if result.ended is None:
        return f"exit code {result.code}"
    return f"ended after {limits.seconds:g} seconds" if result.ended == "timeout" else _ENDS[result.ended]
