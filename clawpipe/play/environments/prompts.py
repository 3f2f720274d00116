"""`prompts`: tasks from a file of prompts with their answers, without code.

One JSON object a line:

{"prompt": "How many legs have 7 spiders?", "answer": 56, "check": "numeric"}
{"messages": [{"role": "user", "content": "..."}], "answer": {"name": "stock", "arguments": {"item": "lamp"}}, "check": "tool_call"}
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import AliasChoices, BaseModel, ConfigDict, Field, ValidationError, model_validator

from clawpipe.core.basics.json_types import Row
from clawpipe.core.conversation.messages import Message, ToolSpec
from clawpipe.core.store.digests import sha256_json
from clawpipe.data.importers.message import read_messages
from clawpipe.data.importers.strict_json import RefusedError, parse_object
from clawpipe.errors import ConfigError, DataError, NotFoundError
from clawpipe.play.environments.base import Episode, Outcome, TaskItem
from clawpipe.play.environments.checks import CHECKS, Check, unusable, why_wrong
from clawpipe.play.environments.single_turn import OneReply
from clawpipe.play.environments.split import heldout, is_heldout_split, stable_hash
from clawpipe.play.environments.tool_files import load_tools

UNCHECKED = "none"  # the check of a file whose prompts are only asked
_KNOWN = "an earlier line asks the same"
_SHOWN = 3  # rejected lines that a message quotes


class PromptLine(BaseModel):
    """One line of a file of prompts; other fields are ignored, but for those that name images, which no policy sees."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    prompt: str = Field(default="", description="what the user says; or `messages`, which may begin with a system message")
    messages: tuple[dict[str, Any], ...] = Field(default=(), description="role and content of each, the last one the user's")
    answer: Any = Field(default=None, description="what `check` compares the reply with")
    check: str = Field(default="", description="a check by name, or path/to/file.py:NAME; empty: the environment's")
    slice: str = Field(default="all", description="part of the environment that the gate looks at on its own")
    images: Any = Field(default=None, validation_alias=AliasChoices("images", "image", "image_url"), description="refused")
    identity: str = Field(default="", description="prompts of one identity are on one side of the split; empty: the prompt itself")

    @model_validator(mode="after")
    def _asks_something(self) -> PromptLine:
        if bool(self.prompt.strip()) == bool(self.messages):
            raise ValueError("it needs a `prompt`, or else `messages`")
        if self.images:
            raise ValueError("it shows images, and the policy reads text only")
        if self.messages and self.messages[-1].get("role") != "user":
            raise ValueError("the last of its `messages` is not the user's")
        for message in self.messages:
            if message.get("role") not in ("system", "user", "assistant") or not isinstance(message.get("content"), str):
                raise ValueError("each of its `messages` needs a role (system, user, assistant) and a text as content")
        return self

    @property
    def asked(self) -> tuple[str, tuple[Message, ...]]:
        """Its identity and its messages: two lines of which both are equal are one task."""
        messages = self.conversation()
        return self.identity or messages[-1].content.strip(), messages

    def conversation(self) -> tuple[Message, ...]:
        """Return the item's messages."""
        return tuple(Message(message["role"], message["content"]) for message in self.messages) or (Message("user", self.prompt),)


@dataclass(frozen=True)
class Prompts:
    """The lines of a file that can be asked, and why the others cannot, by line number."""

    lines: tuple[PromptLine, ...]
    rejected: dict[int, str]


def read_prompts(
    file: Path,
    check: str = "exact",
    *,
    runs_tools: bool = False,
    why_not: Callable[[PromptLine], str] = lambda line: "",
    option: str = "file",
) -> Prompts:
    """Read a file of prompts; a line that cannot be asked or checked is rejected with its reason.

    Args:
        check: that of lines that name none.
        runs_tools: whether tools run, whose state can be checked.
        why_not: says why an environment cannot ask a line; "" if it can.
        option: of the environment, that names the file.

    Raises:
        NotFoundError: there is no such file.
        DataError: no line can be asked.
    """
    if not file.is_file():
        raise NotFoundError("there is no such file of prompts", str(file), f"set environment.options.{option}")
    lines: dict[object, PromptLine] = {}
    rejected: dict[int, str] = {}
    for number, text in enumerate(file.read_bytes().splitlines(), start=1):
        if text.strip():
            line = _line(text, check, runs_tools)
            why = line if isinstance(line, str) else why_not(line) or (_KNOWN if line.asked in lines else "")
            if why or isinstance(line, str):
                rejected[number] = why
            else:
                lines[line.asked] = line
    if not lines:
        reason = next(iter(rejected.values()), "it is empty")
        raise DataError(f"no line of it is a prompt with an answer: {reason}", str(file), "see docs/environments.md, prompts")
    return Prompts(tuple(lines.values()), rejected)


def read_examples(file: Path) -> list[Message]:
    """Read the messages of a file of worked examples, one conversation per line, each without a system message.

    Raises:
        NotFoundError: there is no such file.
        DataError: a line is no conversation that ends with a reply.
    """
    if not file.is_file():
        raise NotFoundError("there is no such file of examples", str(file), "set environment.options.examples")
    messages: list[Message] = []
    for number, text in enumerate(file.read_bytes().splitlines(), start=1):
        if text.strip():
            messages += _example(text, f"{file}:{number}")
    return messages


def _example(text: bytes, where: str) -> tuple[Message, ...]:
    try:
        given = parse_object(text).get("messages")
        messages = read_messages(given if isinstance(given, list) else []).messages
    except RefusedError as error:
        raise DataError(
            f"no conversation: {error}", where, 'write {"messages": [{"role": "user", "content": "..."}, ...]}'
        ) from None
    if [message.role for message in messages][:1] != ["user"] or messages[-1].role != "assistant":
        raise DataError("an example begins with the user and ends with a reply", where, "leave other messages out")
    return messages


class PromptsEnvironment:
    """One question and one reply, checked against the answer in the file.

    Args:
        file: JSON Lines, see `PromptLine`.
        check: check of the lines that name none: exact, normalized, contains, numeric, regex, json_schema, tool_call, or
            path/to/file.py:NAME, a function of the reply's `Message` and the answer that returns whether it is right; UNCHECKED:
            lines without an answer are asked, too, and no reply can be verified.
        system: system message before every prompt; "": none.
        tools: JSON file of the tools on offer, see clawpipe.play.environments.tool_files; "": none. They are not run.
        share: of the identities that are held out, in (0, 1).
        examples: JSON Lines of conversations, `{"messages": [...]}` in OpenAI's form, that are shown before every prompt; "": none.
    """

    name = "prompts"
    kind = "chat"
    runs_tools = False
    option = "file"  # that names the file

    def __init__(
        self, file: str, check: str = "exact", system: str = "", tools: str = "", share: float = 0.3, examples: str = ""
    ) -> None:
        if not 0 < share < 1:
            raise ConfigError(f"{share} is no share of prompts", "environment.options.share", "give a number between 0 and 1")
        self._share = share
        self._preamble = [Message("system", system)] if system else []
        self._preamble += read_examples(Path(examples).expanduser()) if examples else []
        self._tools = load_tools(Path(tools).expanduser()) if tools else []
        self._file = Path(file).expanduser()
        self._checks: dict[str, Check] = {}
        read = read_prompts(self._file, check, runs_tools=self.runs_tools, why_not=self._why_not, option=self.option)
        self._items = {side: list(self._made(read.lines, side, check)) for side in ("train", "heldout")}
        self._rejected = read.rejected

    def tools(self) -> list[ToolSpec]:
        """Return the tools on offer."""
        return self._tools

    def preamble(self) -> list[Message]:
        """Return the system message, if there is one, and the examples."""
        return self._preamble

    def items(self, split: str, count: int, seed: int) -> list[TaskItem]:
        """Return `count` prompts of a split, in an order that the seed decides.

        Raises:
            ConfigError: no such split.
            DataError: there are fewer.
        """
        is_heldout_split(split)
        there = self._items[split]
        if count > len(there):
            setting = "train_items" if split == "train" else "heldout_items"
            what = f"{count} {split} items wanted, the file has {len(there)}"
            raise DataError(what, str(self._file), f"set environment.{setting} to {len(there)} or less, or add prompts")
        chosen = sorted(there, key=lambda item: stable_hash(f"{seed}/{item.item_id}"))[:count]
        return [replace(item, ordinal=ordinal) for ordinal, item in enumerate(chosen)]

    def every_item(self) -> list[TaskItem]:
        """Return the prompts of both sides."""
        return [item for there in self._items.values() for item in there]

    def distinct_items(self, split: str) -> int:
        """Return the number of prompts on a side of the split."""
        return len({item.identity for item in self._items[split]})

    def warnings(self) -> list[str]:
        """Return a sentence about the lines that were rejected, if there are any."""
        return [_about_rejected(self._file, self._rejected)] if self._rejected else []

    def start(self, item: TaskItem) -> Episode:
        """Begin an episode, which ends after the policy's reply."""
        return OneReply()

    def verify(self, item: TaskItem, messages: Sequence[Message]) -> Outcome:
        """Return whether the check accepts the reply; the value is 1 or 0.

        Raises:
            ValueError: nothing was answered.
        """
        if messages[-1].role != "assistant":
            raise ValueError("no answer")
        truth: Row = json.loads(item.truth)
        if truth["check"] == UNCHECKED:
            raise ValueError("the prompt has no answer to check against")
        check, answer = truth["check"], truth["answer"]
        right = bool(self._check(check)(messages[-1], answer))
        return Outcome(float(right), right, check if right else why_wrong(check, messages[-1], answer), truth)

    def _why_not(self, line: PromptLine) -> str:
        """Return why a line cannot be asked here; "" if it can."""
        return ""

    def _check(self, name: str) -> Check:
        if name not in self._checks:
            self._checks[name] = CHECKS.load(name)
        return self._checks[name]

    def _made(self, lines: Sequence[PromptLine], side: str, check: str) -> Iterator[TaskItem]:
        """Yield the items of one side of the split."""
        for line in lines:
            identity, messages = line.asked
            if heldout(identity, self._share) == (side == "heldout"):
                item_id = sha256_json([self.name, identity, [message.as_dict() for message in messages]])[:16]
                truth = json.dumps({"answer": line.answer, "check": line.check or check}, sort_keys=True)
                yield TaskItem(item_id, identity, self.name, self.kind, side, line.slice, messages, truth, 0)


def _about_rejected(file: Path, rejected: dict[int, str]) -> str:
    """Return one sentence about lines that were rejected: how many, why, and where the first ones are."""
    reasons = ", ".join(f"{count} x {reason}" for reason, count in Counter(rejected.values()).most_common(_SHOWN))
    places = ", ".join(map(str, list(rejected)[:_SHOWN]))
    return f"{file}: {len(rejected)} lines are no prompts and were left out ({reasons}); first at line {places}"


def _line(text: bytes, check: str, runs_tools: bool) -> PromptLine | str:
    """Return the line, or why it cannot be asked or checked."""
    try:
        given = json.loads(text)
        json.dumps(given, ensure_ascii=False).encode()
        line = PromptLine.model_validate(given)
        if check == UNCHECKED:
            return line
        CHECKS.place(line.check or check)
    except NotFoundError as error:
        return str(error.what)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        return f"{place}: {first['msg']}" if place else first["msg"].removeprefix("Value error, ")
    except UnicodeEncodeError:
        return "a text of it has half a surrogate pair, which UTF-8 cannot express"
    except (ValueError, RecursionError):
        return "no JSON object"
    if (line.check or check) == "state" and not runs_tools:
        return "the check state needs tools that run: use the environment tools"
    return unusable(line.check or check, line.answer) or line
