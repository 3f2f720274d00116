"""`agent`: a program of yours plays the episodes. It asks the policy over HTTP, as it would ask a service.

Tasks are a file of prompts, see `clawpipe.play.environments.prompts`. What the program achieved is said by the check of its task,
which reads the policy's last reply, or by a program that looks at what was left in the sandbox.
"""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

from clawpipe.core.basics.json_types import Options
from clawpipe.core.conversation.messages import Message
from clawpipe.core.store.plain_digests import sha256_bytes, sha256_plain
from clawpipe.errors import ConfigError
from clawpipe.play.environments.base import Outcome, TaskItem, Verdict
from clawpipe.play.environments.interpreter import interpreter
from clawpipe.play.environments.prompts import UNCHECKED, PromptLine, PromptsEnvironment
from clawpipe.play.sandbox.base import Limits
from clawpipe.play.sandbox.container import image_of

_WHERE = "environment.options"
_TOKENS = 1 << 16
_LONGEST = 120_000  # bytes of what is told in a variable or an argument: the kernel takes 128 KiB as one
REPLY = "reply"  # in the evidence of an episode that left several rows: the last reply of all


@dataclass(frozen=True)
class Program:
    """How a program is run.

    Attributes:
        command, check: argv, the latter of the program that judges; empty: there is none.
        variables: that it gets beside the usual ones.
        limits: of its sandbox; `seconds` are those of the whole run.
        tokens: that it may let the policy sample.
    """

    command: tuple[str, ...]
    check: tuple[str, ...] = ()
    sandbox: str = "bubblewrap"
    sandbox_options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    variables: Mapping[str, str] = field(default_factory=dict[str, str])
    limits: Limits = field(default_factory=Limits)
    tokens: int = _TOKENS


class AgentEnvironment(PromptsEnvironment):
    """A program of yours plays: it is started for each episode, and asks the policy over HTTP.

    Args:
        command: the program and its arguments, never read by a shell. `{prompt}`, `{url}`, `{key}` and `{model}` stand for the
            task's text and for what the program asks; an argument that names a file of this machine is put into the sandbox.
        tasks: JSON Lines, see `PromptLine`.
        check: that of tasks which name none: one by name, which compares the policy's last reply with the answer; or a list, a
            program that is run in the sandbox afterwards.
        sandbox, sandbox_options: a provider of sandboxes and its options.
        limits: of the sandbox, see `clawpipe.play.sandbox.base.Limits`; `seconds` are those of the whole run.
        variables: further variables of its environment, in which the same names in braces stand for the same.
        tokens: the most tokens that an episode may let the policy sample.
        version: of the program, a word of yours: rollouts of another version are other rollouts.
        share: of the tasks' identities that are held out, in (0, 1).
    """

    name = "agent"
    kind = "tool-call"

    def __init__(
        self,
        command: Sequence[str],
        tasks: str,
        check: str | Sequence[str] = "exact",
        sandbox: str = "bubblewrap",
        sandbox_options: Mapping[str, Any] | None = None,
        limits: Mapping[str, Any] | None = None,
        variables: Mapping[str, str] | None = None,
        tokens: int = _TOKENS,
        version: str = "",
        share: float = 0.3,
    ) -> None:
        judge = () if isinstance(check, str) else _argv(check, "check")
        self.program = Program(
            _argv(command, "command"), judge, sandbox, sandbox_options or {}, _texts(variables or {}), _limits(limits or {}), tokens
        )
        super().__init__(tasks, check if isinstance(check, str) else UNCHECKED, share=share)

    @staticmethod
    def inputs_digest(options: Options) -> str:
        """Return the digest of the program that options name, with the packages of its Python if it is one's, and of the image of
        its sandbox.

        Raises:
            NotFoundError, DataError, ConfigError: there is no such image, or the Python does not start.
        """
        given = dict(options.get("sandbox_options") or {})
        image = image_of(given["image"], given.get("program", "podman")).id if "image" in given else ""
        return sha256_plain([image, _installed(options.get("command"))])

    def start(self, item: TaskItem) -> NoReturn:
        """Refuse: only a worker with an engine can offer what the program asks.

        Raises:
            ConfigError: always.
        """
        raise ConfigError("its program plays with an engine that returns tokens", self.name, "set rollouts.engine: embedded")

    def verify(self, item: TaskItem, messages: Sequence[Message], verdict: Verdict | None = None) -> Outcome:
        """Return what the program that judges has said, or whether the check accepts the policy's last reply.

        Raises:
            ValueError: the program that judges did not run, or nothing was replied.
        """
        if not self.program.check:
            replies = [message for message in messages if message.role == "assistant"]
            last = verdict.evidence.get(REPLY) if verdict else None
            return super().verify(item, (replies[-1:] or messages) if last is None else [Message("assistant", last)])
        said = verdict.evidence.get("check") if verdict else None
        if not isinstance(said, dict):
            raise ValueError("the program that judges did not run")
        return Outcome(float(said["value"]), bool(said["success"]), str(said["reason"]), said)

    def _why_not(self, line: PromptLine) -> str:
        """Return why a program cannot be given a task; "" if it can."""
        text = text_of(line.conversation())
        if "\0" in text:
            return "its text has a NUL, which no program can be given"
        if len(text.encode()) > _LONGEST:
            return f"its text has more than {_LONGEST} bytes, which no program can be given"
        if self.program.check and len(answer_text(line.answer).encode()) > _LONGEST:
            return f"its answer has more than {_LONGEST} bytes, which no check can be given"
        return ""


def text_of(messages: Sequence[Message]) -> str:
    """Return the text of a task, as its program is given it."""
    return "\n\n".join(message.content for message in messages)


def answer_text(answer: Any) -> str:
    """Return the answer of a task, as the program that judges is given it."""
    return json.dumps(answer, ensure_ascii=False)


def _installed(command: Any) -> str:
    """Return the digest of an installed program; "" of one that is not on this machine, but in an image, say."""
    found = shutil.which(Path(command[0]).expanduser()) if isinstance(command, list | tuple) and command else None
    if found is None:
        return ""
    python = found if Path(found).name.startswith("python") else _python_of(Path(found))
    return interpreter(python).digest if python else sha256_bytes(Path(found).read_bytes())


def _python_of(script: Path) -> str | None:
    """Return the Python that runs a script, as those that pip installs name it in their first line; None if it is none."""
    with script.open("rb") as file:
        first = file.readline(4096)
    path = first[2:].decode(errors="replace").strip() if first.startswith(b"#!") else ""
    return path if Path(path).name.startswith("python") else None


def _argv(given: Any, option: str) -> tuple[str, ...]:
    if isinstance(given, str) or not given or not all(isinstance(part, str) and part and "\0" not in part for part in given):
        raise ConfigError("it is no list of a program and its arguments", f"{_WHERE}.{option}", 'write ["python3", "loop.py"]')
    files = {file.resolve(): file.name for file in map(named_file, given[1:]) if file}
    for name, count in Counter(files.values()).items():
        if count > 1:
            what = f"{count} of its files are called {name}, and lie in one working folder"
            raise ConfigError(what, f"{_WHERE}.{option}", "give each a name of its own")
    return tuple(given)


def named_file(part: str) -> Path | None:
    """Return the file of this machine that an argument of a command names; None: it names none."""
    try:
        file = Path(part).expanduser()
        return file if file.is_file() else None
    except (OSError, RuntimeError, ValueError):  # a long text
        return None


def _texts(given: Mapping[str, Any]) -> dict[str, str]:
    if wrong := next((name for name, value in given.items() if not isinstance(value, str)), None):
        raise ConfigError(f"the value of {wrong} is no text", f"{_WHERE}.variables", "put it in quotes")
    return dict(given)


def _limits(given: Mapping[str, Any]) -> Limits:
    chosen: dict[str, Any] = {"seconds": 300.0, **given}
    try:
        return Limits(**chosen)
    except TypeError:
        known = ", ".join(Limits.__dataclass_fields__)
        raise ConfigError(f"one of {', '.join(given)} is no limit", f"{_WHERE}.limits", f"limits are {known}") from None
