"""A new user's first hour: the README's own lines, typed on logs of each kind that it names, in a fresh home.

    python benchmarks/first_hour.py                                  # every kind, SmolLM2: a quarter of an hour each
    python benchmarks/first_hour.py --kind exports --chats 24 -- --model random -o train.max_steps=1

Prints what the user types and sees, in 80 columns. The logs tell of chats of an agent with four tools, in the form of one program
of each row of the README's table. Lines come from its section "Your logs, your model", with the kind's file in place of
chats.jsonl; words behind `--` follow `clawpipe train`. Claims: each line ends with code 0, `inspect` finds every chat, and the
night of each kind ends in a verdict, with a version that `clawpipe chat` talks to.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from clawpipe.core.basics.json_types import JsonObject

README = Path(__file__).parents[1] / "README.md"
NAMED = "chats.jsonl"  # what the README calls the logs
TOOLS = {  # argument, and how people ask
    "stock": ("item", "How many {}s have you got?"),
    "price": ("item", "What do you charge for the {}?"),
    "weather": ("city", "Will I need a coat in {}?"),
    "calc": ("expression", "Please work out {}."),
}
CITIES = ("Oslo", "Vienna", "Lisbon", "Dublin", "Prague", "Seoul", "Havana", "Boston", "Athens", "Berlin")


@dataclass(frozen=True)
class Chat:
    """A question, the call that it took, and the answer."""

    name: str
    asked: str
    tool: str
    arguments: dict[str, str]
    result: str

    @property
    def answer(self) -> str:
        return f"The answer is {self.result}."

    @property
    def messages(self) -> list[JsonObject]:
        """It in the form of OpenAI's API."""
        function = {"name": self.tool, "arguments": json.dumps(self.arguments)}
        return [
            {"role": "user", "content": self.asked},
            {"role": "assistant", "content": None, "tool_calls": [{"id": "c1", "type": "function", "function": function}]},
            {"role": "tool", "tool_call_id": "c1", "content": self.result},
            {"role": "assistant", "content": self.answer},
        ]


def chats(count: int) -> list[Chat]:
    """Return what the logs tell, the same each time."""
    draw = random.Random(0)
    return [_chat(number, draw) for number in range(count)]


def _chat(number: int, draw: random.Random) -> Chat:
    tool = draw.choice(list(TOOLS))
    argument, question = TOOLS[tool]
    left, right = draw.randint(2, 50), draw.randint(2, 50)
    subject, result = {
        "item": (f"{draw.choice(['copper', 'oak', 'wool', 'tin'])} {draw.choice(['lamp', 'desk', 'bell', 'mug'])}", str(left)),
        "city": (draw.choice(CITIES), draw.choice(["sunny", "rainy", "foggy"])),
        "expression": (f"{left} + {right}", str(left + right)),
    }[argument]
    return Chat(f"chat-{number}", question.format(subject), tool, {argument: subject}, result)


def claude_code(logs: list[Chat], place: Path) -> None:
    """A folder of sessions, each a file with a line for each block."""
    place.mkdir()
    for chat in logs:
        call = {"type": "tool_use", "id": "t1", "name": chat.tool, "input": chat.arguments}
        said = [
            ("user", {"role": "user", "content": chat.asked}),
            ("assistant", {"id": "m1", "role": "assistant", "model": "m", "content": [call]}),
            ("user", {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": chat.result}]}),
            ("assistant", {"id": "m2", "role": "assistant", "model": "m", "content": [{"type": "text", "text": chat.answer}]}),
        ]
        above = [None, *(f"u{number}" for number in range(len(said)))]
        named = {"sessionId": chat.name, "isSidechain": False, "cwd": "/shop", "version": "2.1"}
        lines = [
            named | {"type": kind, "uuid": f"u{number}", "parentUuid": above[number], "message": message}
            for number, (kind, message) in enumerate(said)
        ]
        _write(place / f"{chat.name}.jsonl", lines)


def chatgpt(logs: list[Chat], file: Path) -> None:
    """ChatGPT's `conversations.json`: one array, each conversation a tree."""
    file.write_text(json.dumps([_tree(chat) for chat in logs], indent=1), encoding="utf-8")


def _tree(chat: Chat) -> JsonObject:
    text = {"content_type": "text"}
    said = [
        ("user", None, "all", text | {"parts": [chat.asked]}),
        ("assistant", None, chat.tool, {"content_type": "code", "text": json.dumps(chat.arguments)}),
        ("tool", chat.tool, "all", text | {"parts": [chat.result]}),
        ("assistant", None, "all", text | {"parts": [chat.answer]}),
    ]
    nodes = {"n0": {"id": "n0", "message": None, "parent": None, "children": ["n1"]}}
    for number, (role, name, recipient, content) in enumerate(said, 1):
        message = {"id": f"n{number}", "author": {"role": role, "name": name}, "content": content, "recipient": recipient}
        message |= {"status": "finished_successfully", "metadata": {}}
        nodes[f"n{number}"] = {"id": f"n{number}", "parent": f"n{number - 1}", "children": [], "message": message}
    return {"title": chat.asked, "create_time": 1.5, "conversation_id": chat.name, "current_node": "n4", "mapping": nodes}


def langfuse(logs: list[Chat], file: Path) -> None:
    """Langfuse's generations, one a line: what was sent, and the answer."""
    ids = {"type": "GENERATION", "model": "m"}
    _write(
        file,
        [
            ids
            | {
                "id": chat.name,
                "traceId": chat.name,
                "sessionId": chat.name,
                "input": chat.messages[:-3],
                "output": chat.messages[1],
            }
            for chat in logs
        ],
    )


def langgraph(logs: list[Chat], file: Path) -> None:
    """States of LangGraph, one a line, as `model_dump` writes their messages."""
    states = []
    for chat in logs:
        call = {"name": chat.tool, "args": chat.arguments, "id": "c1", "type": "tool_call"}
        said = [
            {"type": "human", "content": chat.asked},
            {"type": "ai", "content": "", "tool_calls": [call]},
            {"type": "tool", "content": chat.result, "tool_call_id": "c1"},
            {"type": "ai", "content": chat.answer, "tool_calls": []},
        ]
        states.append({"messages": said, "thread_id": chat.name})
    _write(file, states)


def harbor(logs: list[Chat], place: Path) -> None:
    """A folder of Harbor's trials, each with its trajectory."""
    for chat in logs:
        call = {"tool_call_id": "c1", "function_name": chat.tool, "arguments": chat.arguments}
        observed = {"results": [{"source_call_id": "c1", "content": chat.result}]}
        steps = [
            {"step_id": 1, "source": "user", "message": chat.asked},
            {"step_id": 2, "source": "agent", "message": "", "tool_calls": [call], "observation": observed},
            {"step_id": 3, "source": "agent", "message": chat.answer},
        ]
        (place / chat.name / "agent").mkdir(parents=True)
        agent = {"name": "shop", "version": "1", "model_name": "m"}
        trajectory = {"schema_version": "ATIF-v1.6", "session_id": chat.name, "agent": agent, "steps": steps}
        _write(place / chat.name / "agent" / "trajectory.json", [trajectory])


def somebody(logs: list[Chat], file: Path) -> None:
    """A form of the user's own."""
    _write(file, [{"ticket": {"number": chat.name, "talk": chat.messages}} for chat in logs])


def _write(file: Path, rows: list[JsonObject]) -> None:
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


@dataclass(frozen=True)
class Kind:
    """A row of the README's table, by one program that writes it."""

    row: str
    file: str
    format: str
    write: Callable[[list[Chat], Path], None]
    words: tuple[str, ...] = ()  # that read it


_MAP = ("--map", "messages=ticket.talk", "--map", "session_id=ticket.number")
KINDS = {
    "sessions": Kind("sessions of agents", "projects", "claude-code", claude_code),
    "exports": Kind("exports of chats", "conversations.json", "chatgpt", chatgpt),
    "traces": Kind("logged requests and traces", "traces.jsonl", "langfuse", langfuse),
    "frameworks": Kind("messages of frameworks", "states.jsonl", "langchain", langgraph),
    "records": Kind("records of trainings and benchmarks", "jobs", "atif", harbor),
    "own": Kind("anything else", "tickets.jsonl", "chat", somebody, _MAP),
}


def lines_for(kind: Kind, train: list[str]) -> list[str]:
    """Return what the README tells its reader to type about logs, for logs of this kind."""
    text = README.read_text(encoding="utf-8")
    [block] = re.findall(r"## Your logs, your model.*?```console\n(.*?)```", text, re.DOTALL)
    lines = []
    for line in block.splitlines():
        words = [kind.file if word == NAMED else word for word in shlex.split(line)]
        words += kind.words if kind.file in words else ()
        lines.append(shlex.join(words + (train if words[1] == "train" else [])))
    return lines


class Hour:
    """A directory with one kind's logs, and a home that nothing has used."""

    def __init__(self, kind: Kind, place: Path) -> None:
        self._kind, self._place = kind, place
        programs = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        own = {"HOME": str(place), "CLAWPIPE_HOME": str(place / ".clawpipe"), "COLUMNS": "80", "PATH": programs}
        self._env = {
            name: value for name, value in os.environ.items() if not name.startswith(("CLAWPIPE", "PREFECT", "MLFLOW"))
        } | own

    def spend(self, count: int, train: list[str]) -> str:
        """Type everything; return the verdict.

        Raises:
            RuntimeError: a line failed, or chats were not read.
        """
        self._kind.write(chats(count), self._place / self._kind.file)
        for line in lines_for(self._kind, train):
            shown = self.type(line)
            if " inspect " in line and f"{count} conversations of {count} sessions" not in shown:
                raise RuntimeError(f"not every chat was read of {self._kind.row}")
        self.type("clawpipe chat", said=f"{TOOLS['stock'][1].format('oak table')}\n")
        return json.loads(self.type("clawpipe status --json", quiet=True))["verdict"]

    def type(self, line: str, said: str = "", quiet: bool = False) -> str:
        """Run a line; print it with what it prints, and return that.

        Raises:
            RuntimeError: it failed.
        """
        print(f"\n$ {line}", flush=True)
        done = subprocess.run(
            shlex.split(line),
            cwd=self._place,
            env=self._env,
            input=said,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        if not quiet or done.returncode:
            print(done.stdout, end="", flush=True)
        if done.returncode:
            raise RuntimeError(f"`{line}` ended with code {done.returncode}")
        return done.stdout


def main() -> int:
    """Spend an hour with each kind; returns 1 if one failed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--kind", action="append", choices=KINDS, help="by default, all")
    parser.add_argument("--chats", type=int, default=160)
    parser.add_argument("train", nargs="*", help="further words of `clawpipe train`")
    arguments = parser.parse_args()
    outcomes = {}
    for name in arguments.kind or KINDS:
        with tempfile.TemporaryDirectory() as place:
            print(f"\n== {KINDS[name].row}: {KINDS[name].file}")
            try:
                outcomes[name] = Hour(KINDS[name], Path(place)).spend(arguments.chats, arguments.train)
            except RuntimeError as error:
                outcomes[name] = f"FAILED: {error}"
    print("\n" + "\n".join(f"{name:<12}{outcome}" for name, outcome in outcomes.items()))
    return int(any(outcome.startswith("FAILED") for outcome in outcomes.values()))


if __name__ == "__main__":
    sys.exit(main())
