"""Write a new environment, which works as it is, to be changed into one's own."""

from __future__ import annotations

import re
from pathlib import Path

from clawpipe.errors import ConfigError

_TEMPLATE = '''"""@NAME@: the policy writes a word into a file. Change it into your own; docs/environments.md says more."""

import json
import tempfile
from pathlib import Path

from pydantic import BaseModel, Field

from clawpipe.play.environments.base import Hindsight, Outcome, Verdict, question_item
from clawpipe.play.environments.split import heldout, is_heldout_split
from clawpipe.core.conversation.messages import Message, ToolCall, ToolSpec

WORDS = ["amber", "birch", "cedar", "delta", "ember", "fjord", "grove", "haven", "islet", "jolly", "karst", "lemon"]


class @CLASS@:
    """Write a word into a file."""

    name = "@NAME@"
    kind = "terminal"

    class Config(BaseModel):
        copies: int = Field(2, ge=1, description="how often a task asks for its word")

    def __init__(self, config):
        self.config = config

    def tools(self):
        return [ToolSpec("write", "Write a text into a file.", {"file": "string", "text": "string"})]

    def preamble(self):
        return [Message("system", "Use the tool.")]

    def items(self, split, count, seed):
        """An identity is what the split goes by: here the word and the number, so each task is on one side only."""
        wanted, found, number = is_heldout_split(split), [], 0
        while len(found) < count:
            word, number = WORDS[number % len(WORDS)], number + 1
            identity = f"{seed}/{word}/{number}"
            if heldout(identity, 0.5) == wanted:
                truth = {"file": f"{number}.txt", "text": " ".join([word] * self.config.copies)}
                question = f"Write {word} {self.config.copies} times into {number}.txt."
                place = len(found)
                item = question_item(self, split, place, identity=identity, part="write", question=question, truth=truth)
                found.append(item)
        return found

    def distinct_items(self, split):
        return None  # as many as one likes

    def start(self, item, seed):
        return Episode(json.loads(item.truth))

    def verify(self, item, messages, verdict):
        """Pure: it reads what is recorded alone."""
        written = verdict is not None and verdict.evidence["written"]
        return Outcome(float(written), written, "written" if written else "not written", {})

    def hindsight(self, item, messages):
        """The turns that would have been right."""
        call = ToolCall("call", "write", item.truth)
        result = Message("tool", "written", tool_call_id="call", name="write")
        return Hindsight(("Call write once.",), (Message("assistant", "", (call,)), result, Message("assistant", "Done.")))


class Episode:
    def __init__(self, truth):
        self.truth, self.folder = truth, tempfile.TemporaryDirectory()

    def respond(self, messages):
        calls = messages[-1].tool_calls
        return [Message("tool", self.result(call), tool_call_id=call.id, name=call.name) for call in calls] or None

    def result(self, call):
        """Whatever a policy calls is answered, and never raises."""
        arguments = {} if call.malformed else json.loads(call.arguments)
        file, text = arguments.get("file"), arguments.get("text")
        if call.name != "write" or not isinstance(file, str) or not isinstance(text, str) or Path(file).name != file:
            return "error: call write with a file and a text"
        Path(self.folder.name, file).write_text(text)
        return "written"

    def finish(self, reason):
        """Asked once while the folder is still there; the policy never sees the answer."""
        file = Path(self.folder.name, self.truth["file"])
        return Verdict({"written": file.is_file() and file.read_text() == self.truth["text"]})

    def close(self):
        self.folder.cleanup()
'''


def write_environment(file: Path) -> str:
    """Write a new environment; return what a config's `environment.name` takes.

    Raises:
        ConfigError: the file exists, or its name is no module's.
    """
    if file.suffix != ".py" or not file.stem.isidentifier():
        raise ConfigError("its name is no Python module's", str(file), "name it like my_env.py")
    if file.exists():
        raise ConfigError("it exists", str(file), "name another file")
    name = file.stem.lower().replace("_", "-").strip("-")
    title = "".join(part.capitalize() for part in re.split("_+", file.stem))
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(_TEMPLATE.replace("@NAME@", name).replace("@CLASS@", title), encoding="utf-8")
    return f"{file}:{title}"
