"""`agent`: a program of yours plays the episodes. It asks the policy over HTTP, as it would ask a service.

Tasks are a file of prompts, see `clawpipe.play.environments.prompts`. What the program achieved is said by the check of its task,
which reads the policy's last reply, or by a program that looks at what was left in the sandbox.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn, cast

from clawpipe.core.basics.json_types import JsonObject, Options
from clawpipe.core.conversation.messages import Message, ToolSpec
from clawpipe.core.store.plain_digests import sha256_bytes, sha256_plain
from clawpipe.errors import ClawpipeError, ConfigError
from clawpipe.play.environments.base import Outcome, TaskItem, Verdict
from clawpipe.play.environments.discovery import inputs_digest, load_environment, source_digest
from clawpipe.play.environments.interpreter import interpreter
from clawpipe.play.environments.program import (
    TOKENS,
    WHERE,
    Program,
    argv_of,
    home_of,
    interpreter_of,
    limits_of,
    require_above_0,
    require_program,
    variables_of,
    why_untold,
)
from clawpipe.play.environments.prompts import UNCHECKED, PromptLine, PromptsEnvironment
from clawpipe.play.environments.world import Needs, World
from clawpipe.play.sandbox.base import require_sandbox
from clawpipe.play.sandbox.container import image_of

WORLDS = ("terminal", "swe")  # environments whose tasks a program can do
REPLY = "reply"  # in the evidence of an episode that left several rows: the last reply of all


class AgentPrompts(PromptsEnvironment):
    """A file of tasks that programs can be given.

    Args:
        judged: whether a program judges, which is given the answer.
    """

    name = "agent"
    kind = "tool-call"
    option = "tasks"

    def __init__(self, file: str, check: str, share: float, judged: bool) -> None:
        self._judged = judged
        super().__init__(file, check, share=share)

    def _why_not(self, line: PromptLine) -> str:
        """Return why a program cannot be given a task; "" if it can."""
        why = why_untold(text_of(line.conversation()), "text", "program")
        return why or (why_untold(answer_text(line.answer), "answer", "check") if self._judged else "")


class AgentEnvironment:
    """A program of yours plays: it is started for each episode, and asks the policy over HTTP.

    Args:
        command: the program and its arguments, never read by a shell. `{prompt}`, `{url}`, `{key}` and `{model}` stand for the
            task's text and for what the program asks; an argument that names a file of this machine is put into the sandbox.
        tasks: JSON Lines, see `PromptLine`; "": those of `world`.
        check: that of tasks which name none: one by name, which compares the policy's last reply with the answer; or a list, a
            program that is run in the sandbox afterwards.
        sandbox, sandbox_options: a provider of sandboxes and its options.
        limits: of the sandbox, see `clawpipe.play.sandbox.base.Limits`; `seconds` are those of the whole run.
        variables: further variables of its environment, in which the same names in braces stand for the same.
        tokens: the most tokens that an episode may let the policy sample.
        version: of the program, a word of yours: rollouts of another version are other rollouts.
        share: of the tasks' identities that are held out, in (0, 1).
        world: the environment whose tasks it does, `{name: swe, options: {...}}` or `terminal`: in a sandbox of theirs, and judged
            by what it leaves there. Its options say what `tasks`, `check`, `sandbox`, `sandbox_options` and `share` say otherwise.
    """

    name = "agent"
    kind = "tool-call"

    def __init__(
        self,
        command: Sequence[str],
        tasks: str = "",
        check: str | Sequence[str] = "exact",
        sandbox: str = "bubblewrap",
        sandbox_options: Mapping[str, Any] | None = None,
        limits: Mapping[str, Any] | None = None,
        variables: Mapping[str, str] | None = None,
        tokens: int = TOKENS,
        version: str = "",
        share: float = 0.3,
        world: Mapping[str, Any] | None = None,
    ) -> None:
        given = {"tasks": tasks, "check": check != "exact", "sandbox": sandbox != "bubblewrap", "sandbox_options": sandbox_options}
        _refuse_two_sources(given, world)
        judge = () if isinstance(check, str) else argv_of(check, "check")
        require_above_0(tokens, f"{WHERE}.tokens")
        bounds = limits_of(limits or {})
        if world is None:
            require_sandbox(sandbox, sandbox_options or {})
        argv = argv_of(command, "command")
        _require_programs(argv, judge, sandbox, sandbox_options or {}, world)
        self.program = Program(
            argv, judge, sandbox, sandbox_options or {}, variables_of(variables or {}), bounds,
            tokens, load_world(world) if world is not None else None,
            Needs(limits={name: value for name, value in (limits or {}).items() if name != "seconds"}),
        )  # fmt: skip
        self._tasks = self.program.world or AgentPrompts(tasks, check if isinstance(check, str) else UNCHECKED, share, bool(judge))

    @staticmethod
    def inputs_digest(options: Options) -> str:
        """Return the digest of the program that options name, with the packages of its Python if it is one's, and of the image of
        its sandbox.

        Raises:
            NotFoundError, DataError, ConfigError: there is no such image, or the Python does not start; or as the world says.
        """
        given = dict(options.get("sandbox_options") or {})
        image = image_of(given["image"], given.get("program", "podman")).id if "image" in given else ""
        world = [world_digest(options["world"])] if options.get("world") is not None else []
        return sha256_plain([image, _installed(options.get("command")), *world])

    def tools(self) -> list[ToolSpec]:
        return []

    def preamble(self) -> list[Message]:
        return []

    def items(self, split: str, count: int, seed: int) -> list[TaskItem]:
        """Return tasks of the file or of the world. Raises as these."""
        return [replace(item, environment=self.name) for item in self._tasks.items(split, count, seed)]

    def distinct_items(self, split: str) -> int:
        return self._tasks.distinct_items(split)

    def warnings(self) -> list[str]:
        return self._tasks.warnings()

    def start(self, item: TaskItem) -> NoReturn:
        """Refuse: only a worker with an engine can offer what the program asks.

        Raises:
            ConfigError: always.
        """
        raise ConfigError("its program plays with an engine that returns tokens", self.name, "set rollouts.engine: embedded")

    def verify(self, item: TaskItem, messages: Sequence[Message], verdict: Verdict | None = None) -> Outcome:
        """Return what the program that judges has said, or whether the check accepts the policy's last reply.

        Raises:
            ValueError: what judges did not run, or nothing was replied.
        """
        said = verdict.evidence.get("check") if verdict else None
        if isinstance(self._tasks, AgentPrompts) and not self.program.check:
            replies = [message for message in messages if message.role == "assistant"]
            last = verdict.evidence.get(REPLY) if verdict else None
            return self._tasks.verify(item, (replies[-1:] or messages) if last is None else [Message("assistant", last)])
        if not isinstance(said, dict):
            raise ValueError("what judges did not run")
        if not isinstance(self._tasks, AgentPrompts):
            return self._tasks.verify(item, messages, Verdict(said))
        return Outcome(float(said["value"]), bool(said["success"]), str(said["reason"]), said)


def load_world(given: Any) -> World:
    """Return the world that a block of settings names: `{name: swe, options: {...}}`.

    Raises:
        ConfigError: it is no such block, or as `load_environment`.
        NotFoundError, DataError: its tasks cannot be had.
    """
    name, options = _named(given)
    with _told_of_a_world():
        return cast(World, load_environment(name, options))


def world_digest(given: Any) -> str:
    """Return the digest of a world's source, and of what its options name.

    Raises:
        As `load_world`.
    """
    name, options = _named(given)
    with _told_of_a_world():
        return sha256_plain([source_digest(name), inputs_digest(name, options)])


@contextmanager
def _told_of_a_world() -> Iterator[None]:
    """Errors of a world's options name these where they stand."""
    try:
        yield
    except ClawpipeError as error:
        told = (part.replace(f"{WHERE}.", f"{WHERE}.world.options.") for part in (error.what, error.where, error.fix))
        raise type(error)(*told) from None


def _named(given: Any) -> tuple[str, Options]:
    block: JsonObject = dict(given) if isinstance(given, Mapping) else {}
    name, options = block.pop("name", None), block.pop("options", None) or {}
    if name not in WORLDS or block or not isinstance(options, Mapping):
        what = f"{given!r:.80} is no world" if not block else f"a world has no {next(iter(block))!r}"
        raise ConfigError(what, f"{WHERE}.world", f"write {{name: NAME, options: {{...}}}}; names are {' and '.join(WORLDS)}")
    return name, dict(options)


def _refuse_two_sources(given: Mapping[str, Any], world: Any) -> None:
    """Raise a ConfigError if there are no tasks, or options that the world's own stand for."""
    if world is None and not given["tasks"]:
        raise ConfigError("its program has no tasks", f"{WHERE}.tasks", f"name a file of them, or set {WHERE}.world")
    wrong = next((name for name, value in given.items() if value), None)
    if world is not None and wrong:
        raise ConfigError("it says nothing beside a world", f"{WHERE}.{wrong}", f"leave it out, or set it in {WHERE}.world.options")


def _require_programs(
    command: Sequence[str], check: Sequence[str], sandbox: str, sandbox_options: Mapping[str, Any], world: Any
) -> None:
    """Raise a ConfigError where a file of this machine that is to be run is not there, or cannot run in the sandbox."""
    where = WHERE
    options: Options = {"sandbox": sandbox, "sandbox_options": sandbox_options}
    if world is not None:
        where, options = f"{WHERE}.world.options", _named(world)[1]
    apart = options.get("sandbox", "bubblewrap") == "bubblewrap" and not options.get("folder")  # whose tasks may have images
    paths = (options.get("sandbox_options") or {}).get("paths", ()) if apart else None
    for argv, option in ((command, "command"), (check, "check")):
        require_program(argv, option, paths, f"{where}.sandbox_options")


def text_of(messages: Sequence[Message]) -> str:
    """Return the text of a task, as its program is given it."""
    return "\n\n".join(message.content for message in messages)


def answer_text(answer: Any) -> str:
    """Return the answer of a task, as the program that judges is given it."""
    return json.dumps(answer, ensure_ascii=False)


def _installed(command: Any) -> str:
    """Return the digest of an installed program; "" of one that is not on this machine, but in an image, say."""
    first = home_of(command[0]) if isinstance(command, list | tuple) and command and isinstance(command[0], str) else None
    found = shutil.which(first) if first else None
    if found is None:
        return ""
    python = found if Path(found).name.startswith("python") else _python_of(Path(found))
    return interpreter(python).digest if python else sha256_bytes(Path(found).read_bytes())


def _python_of(script: Path) -> str | None:
    """Return the Python that runs a script, as those that pip installs name it in their first line; None if it is none."""
    program = interpreter_of(script)
    return str(program) if program and program.name.startswith("python") else None
